"""Tokens as the terminal prints them."""

from rich.console import Console

from flax_attn.tasks.token_rows import style_of


def test_a_token_with_the_uniform_weight_has_no_colour_and_one_with_all_of_it_the_strongest():
    console = Console(color_system="truecolor", force_terminal=True)
    assert style_of(1 / 9, 9, console) == "white on #131416"
    assert style_of(0.05, 9, console) == "white on #131416"
    assert style_of(1.0, 9, console) == style_of(1.0, 40, console) == "black on #f2faff"
    assert style_of(1.0, 9, Console(color_system=None)) == ""

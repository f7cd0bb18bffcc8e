"""Attention itself on this machine, beside PyTorch's SDPA, `jax.nn`, `flax.linen` and `flax.nnx`.

Arrays are float32, with 4 heads of 64 and as many texts as make 2,048 tokens, at least one. At
length 8,192, a quick run has 2 heads, and SDPA alone beside them. Each side has its arrays in its
own order of axes. Equal work is checked before it is timed: contexts and gradients agree to 1e-4 of
the largest number. The backward pass is that of the sum of squares of the context. PyTorch compiles
flex_attention with a C++ compiler, which must be there.
"""

import functools
from collections.abc import Iterator

from benchmarks import attention_cases as cases
from benchmarks import timing
from benchmarks.attention_forms import DENSE, Call, check, flex, ours, sdpa

HEADS, TOKENS = 4, 2048
LENGTHS = (128, 512, 2048, 8192)
LONGER = 16_384  # where what keeps all weights has no room
PASSES = {"forward": False, "forward and backward": True}  # whether the backward pass is there


def rows(quick: bool) -> Iterator[timing.Row]:
    repeats, lengths = (1, LENGTHS) if quick else (5, (*LENGTHS, LONGER))
    for make in (cases.all_keys, cases.causal, cases.window, half):
        for length in lengths:
            is_short = length <= (TOKENS if quick else max(LENGTHS))  # enough for all weights
            heads = 2 if quick and not is_short else HEADS
            case = make(length, heads, batch_of(length))
            for passes, backward in PASSES.items():
                forms = {"SDPA": sdpa} | (DENSE if is_short else {})
                if make is cases.window and not backward and not quick:
                    forms["flex_attention"] = flex
                forms = {"ours": ours} | forms
                calls = {name: form(case, backward) for name, form in forms.items()}
                check(calls)
                yield row(f"{case.name}, {length}, {passes}", calls, repeats)


half = functools.partial(cases.key_lengths, share=2)


def batch_of(length: int) -> int:
    return max(1, TOKENS // length)


def row(case: str, calls: dict[str, Call], repeats: int) -> timing.Row:
    """Returns milliseconds of calls that take turns, in more rounds where they are short."""
    seconds = timing.alternate(calls, repeats, least=0.1 if repeats == 1 else 1.0)
    ms = {name: 1e3 * value for name, value in seconds.items()}
    return timing.Row("attention", case, "ms", ms.pop("ours"), ms)

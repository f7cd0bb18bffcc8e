"""Figures leave a user's plots alone and keep their own style."""

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb

from flax_attn.analysis import drawing, plotting, texts
from flax_attn.analysis.drawing import Picture, styled

ROOT = Path(__file__).parents[2]
IMPORT_AND_DRAW = """
import importlib, io, pkgutil
import numpy as np
import flax_attn.analysis as package
names = [module.name for module in pkgutil.iter_modules(package.__path__)]
for name in names:
    importlib.import_module(f"{package.__name__}.{name}")
assert len(names) > 10
from flax_attn.analysis import plotting
plotting.attention(np.eye(3), mask=np.tri(3) > 0).savefig(io.BytesIO())
"""


def run(code: str, **environment: str) -> str:
    command = [sys.executable, "-c", code]
    settings = os.environ | environment
    done = subprocess.run(command, cwd=ROOT, env=settings, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_to_draw_chooses_no_backend_and_imports_no_pyplot():
    asked = """
import sys, matplotlib
print("matplotlib.pyplot" in sys.modules, matplotlib.get_backend())
"""
    assert run(IMPORT_AND_DRAW + asked, MPLBACKEND="svg") == "False svg"


def test_to_draw_leaves_the_figures_and_the_settings_of_pyplot():
    before = """
import matplotlib, matplotlib.pyplot as plt
figure, _ = plt.subplots()
matplotlib.rcParams["font.size"] = 17
settings = dict(matplotlib.rcParams)
"""
    asked = """
assert dict(matplotlib.rcParams) == settings
print(plt.get_fignums(), plt.gcf() is figure, plt.get_backend())
"""
    assert run(before + IMPORT_AND_DRAW + asked, MPLBACKEND="pdf") == "[1] True pdf"


def test_a_notebook_is_shown_a_png():
    png = plotting.attention(np.eye(2))._repr_png_()  # pyright: ignore
    assert png.startswith(b"\x89PNG")
    assert len(png) > 3_000


def svg(figure) -> str:
    text = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        figure.savefig(text, format="svg")
    return text.getvalue().decode()


def test_a_dollar_stays_a_dollar_in_the_file():
    words, title = ["$a$", "$b_1$"], "$t$: 50% $a 10% $b$$"
    pictures = [
        plotting.attention(np.eye(2), words, words, title=title),
        plotting.attention_on_text(words, [0.5, 0.5], title=title),
        texts.attention_on_tokens([words], [[0.5, 0.5]], [("$t$", "black")], title),
    ]
    for figure in pictures:
        written = svg(figure)
        for word in (*words, title):
            assert f">{word}<" in written


def test_a_long_title_is_broken_into_lines():
    written = svg(texts.attention_on_tokens([["a"]], [[1.0]], [("b", "black")], "$word " * 40))
    lines = re.findall(r">((?:\$word ?)+)<", written)
    assert len(lines) > 1
    assert "".join(lines).count("$word") == 40


def test_texts_that_are_made_only_when_a_figure_is_drawn_are_literal_too():
    @styled
    def draw():
        figure = Picture()
        figure.subplots().yaxis.set_major_formatter(lambda value, _: f"${value:.1f}$")
        return figure

    assert len(re.findall(r">\$\d\.\d\$<", svg(draw()))) > 3


def test_a_figure_keeps_its_style_when_it_is_drawn_later():
    @styled
    def draw():
        figure = Picture()
        figure.subplots()
        return figure

    expected = svg(draw())
    with matplotlib.rc_context({"font.size": 30, "axes.spines.top": True}):
        figure = draw()
        late = svg(figure)
    assert set(re.findall(r"font-size: ([^;]*)", expected)) == {"10px"}
    strip = re.compile(r"<dc:date>.*?</dc:date>|id=\"[^\"]*\"|#[\w-]+|url\([^)]*\)")
    assert strip.sub("", late) == strip.sub("", expected)


def test_the_scale_of_colours_ends_with_a_tick_that_is_drawn():
    for top in (0.0012, 0.012, 0.2257, 0.3333, 0.999, 1.0):
        figure = Picture()
        bar = drawing.colour_bar(figure, top, ax=figure.subplots())
        figure.canvas.draw()
        ticks = bar.get_ticks()
        assert ticks[-1] == bar.vmax == top
        written = [label.get_text() for label in bar.ax.get_yticklabels()]
        assert written[0] == "0"
        assert float(written[-1]) == pytest.approx(top, abs=0.005)
        assert len(set(written)) == len(written)


STRENGTHS = [  # weight, number of keys, strength: 0 for 1/n, 1 for 1, as much for each doubling
    (0.0, 9, 0.0),
    (1 / 9, 9, 0.0),
    (1 / 3, 9, 0.5),
    (0.5, 16, 0.75),
    (0.25, 16, 0.5),
    (1.0, 16, 1.0),
    (1.0, 2, 1.0),
    (1.0, 1, 0.0),
    (0.1, 100, 0.5),
    (3.0, 4, 1.0),
]


@pytest.mark.parametrize(("weight", "count", "expected"), STRENGTHS)
def test_a_weight_is_strong_by_how_far_it_is_above_the_uniform_one(weight, count, expected):
    assert drawing.strength(weight, count) == pytest.approx(expected, abs=1e-9)
    with drawing.on(drawing.DARK):
        assert drawing.of_strength(weight, count)[0] == to_hex(drawing.DARK.heat(expected))


def test_a_near_uniform_matrix_is_pale_and_its_scale_reaches_8_uniform_weights():
    weights = np.random.default_rng(0).uniform(0.9, 1.1, (20, 20)) / 20
    assert drawing.top_of(weights) == pytest.approx(8 / 20)
    assert drawing.top_of(np.eye(20)) == 1
    assert drawing.top_of(np.full((4, 4), 0.25)) == 1


def contrast(one, other):
    """The ratio of contrast of two colours, as the guidelines of accessible pages define it."""
    linear = lambda value: value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
    parts = lambda colour: np.array([linear(value) for value in to_rgb(colour)])
    low, high = sorted(float(parts(own) @ (0.2126, 0.7152, 0.0722)) for own in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [drawing.LIGHT, drawing.DARK])
def test_what_is_written_on_any_colour_can_be_read(theme):
    with drawing.on(theme):
        pairs = [drawing.of_weight(weight) for weight in np.linspace(0, 1, 200)]
    assert min(contrast(*pair) for pair in pairs) >= 4.5


def test_a_file_is_replaced_whole(tmp_path):
    path = drawing.save(plotting.attention(np.eye(2)), tmp_path / "folder" / "map.pdf")
    assert path.read_bytes().startswith(b"%PDF")
    assert list(path.parent.iterdir()) == [path]

"""A page has the colours of the figures, and its weights are as strong as in them."""

import json

import numpy as np
import pytest

from flax_attn.analysis import drawing
from tests.analysis.test_drawing import STRENGTHS, contrast
from tests.explore import living
from tests.page.modules import said

HEAT = "const { colours, rgb, strength, topOf } = await import('./pictures/heat.mjs');"

DARK = "globalThis.matchMedia = (query) => ({ matches: query !== 'print', addEventListener() {} });"
WHOLE = 'document.querySelector(".heat canvas")'
CORNERS = f"""(() => {{
  const canvas = {WHOLE};
  const pen = new OffscreenCanvas(9, 9).getContext("2d", {{ willReadFrequently: true }});
  Object.assign(pen.canvas, {{ width: canvas.width, height: canvas.height }});
  pen.drawImage(canvas, 0, 0);
  const {{ data }} = pen.getImageData(0, 0, canvas.width, canvas.height);
  const lights = data.filter((_, i) => i % 4 === 1).sort();
  return [lights[0], lights.at(-1)];
}})()"""


@living.needs_node
@pytest.mark.parametrize(("theme", "before"), [(drawing.LIGHT, ""), (drawing.DARK, DARK)])
def test_a_page_has_the_colours_of_the_figures(theme, before):
    places = np.linspace(0, 1, 52)
    drawn = said(f"{places.tolist()}.map(rgb)", before + HEAT)
    np.testing.assert_allclose(np.array(drawn) / 255, theme.heat(places)[:, :3], atol=0.012)
    both = np.linspace(-1, 1, 101)
    drawn = said(f"{both.tolist()}.map(rgb)", before + HEAT)
    np.testing.assert_allclose(
        np.array(drawn) / 255, theme.signed((both + 1) / 2)[:, :3], atol=0.02
    )
    pairs = said(f"{both.tolist()}.map(colours)", before + HEAT)
    hexadecimal = {"#fff": "#ffffff", "#000": "#000000"}
    numbers = [own["background"].removeprefix("rgb(").rstrip(")").split(",") for own in pairs]
    grounds = [tuple(int(part) / 255 for part in row) for row in numbers]
    inks = [hexadecimal[own["color"]] for own in pairs]
    assert min(contrast(*pair) for pair in zip(grounds, inks)) >= 4.5


@living.needs_node
def test_a_weight_is_as_strong_as_in_a_figure():
    strengths = f"{json.dumps(STRENGTHS)}.map(([weight, count]) => strength(weight, count))"
    shown = said(strengths, HEAT)
    assert shown == pytest.approx([expected for _, _, expected in STRENGTHS], abs=1e-9)
    matrices = [np.full((4, 40), 1 / 40), np.eye(20), np.full((4, 4), 0.25)]
    for weights in matrices:
        rows, columns = weights.shape
        own = f"{{ rows: {rows}, columns: {columns}, at: (q, k) => {weights.tolist()}[q][k] }}"
        assert said(f"topOf({own})", HEAT) == pytest.approx(drawing.top_of(weights))
        signed = own.replace("{ ", "{ signed: true, ", 1).replace("[k]", "[k] * -3")
        assert said(f"topOf({signed})", HEAT) == pytest.approx(drawing.top_of(-3 * weights))


def ground(word):
    colour = word.evaluate("own => getComputedStyle(own).backgroundColor")
    return [int(part) / 255 for part in colour.removeprefix("rgb(").rstrip(")").split(",")]


@pytest.mark.slow
def test_a_page_that_turns_dark_or_goes_to_paper_is_painted_again(visit, written):
    _, path = written("texts")
    opened = visit(path)
    page, word = opened.page, opened.page.locator(".words .word").nth(4)
    light = page.evaluate(CORNERS), ground(word)
    assert light[0][1] > 250
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(300)
    dark = page.evaluate(CORNERS), ground(word)
    assert dark[0][0] < 0x20
    assert dark[1] != light[1]
    page.emulate_media(color_scheme="dark", media="print")
    page.wait_for_timeout(300)
    assert (page.evaluate(CORNERS), ground(word)) == light

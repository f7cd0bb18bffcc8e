"""Every example in the pages runs as it stands, and its picture is drawn from it.

Every link leads to a file.
"""

import json
import re
import sys

import flax.linen as nn
import jax
import jaxtyping
import numpy as np
import pytest
from matplotlib.text import Text
from PIL import Image

import flax_attn
from docs import fresh, live_pages, of_devices, of_numbers, panels
from docs.draw import DOCS, OF_PAGE, PAGES, first_example, run_example
from flax_attn import attention, heads
from flax_attn.analysis import drawing
from tests import tiny

SHORT = ("self_attention",)
SIGNED = ("linear",)  # pages whose weights may be negative, in rows of any sum
BARS = "normalizers", "scores", "todays_models"  # pages whose pictures are bars or curves
GUIDES = (pytest.param("python", marks=pytest.mark.slow), "build_your_own")
BRIDGES = ("nnx", "equinox")
README = DOCS.parent / "README.md"


@pytest.mark.parametrize(
    "page",
    [page if page in SHORT else pytest.param(page, marks=pytest.mark.slow) for page in PAGES],
)
def test_the_example_of_a_page_runs_and_is_its_picture(page):
    text = (DOCS / "attention" / f"{page}.md").read_text()
    names = run_example(text)
    with drawing.on(drawing.DARK):
        figure = drawing.styled(OF_PAGE[page])(names)
    assert figure.get_figwidth() == panels.WIDTH
    drawn = [image.get_array() for ax in figure.axes for image in ax.images]
    for weights in drawn:
        assert weights.ndim == 2
        assert page in SIGNED or weights.min() >= 0
        assert page in SIGNED or (weights.filled(0).sum(axis=1) < 1 + 1e-5).all()
        assert weights.max() > 0.08
    assert drawn or page in BARS
    assert page not in SIGNED or min(weights.min() for weights in drawn) < -0.08
    for ax in figure.axes:
        assert not ax.images or ax.yaxis_inverted()
    assert_legible(figure)
    assert f"`python -m docs.draw {page}`" in text
    assert f"](../images/{page}.png)" in text


def assert_legible(figure):
    """No text is smaller than 9 points, none is cut off, and none but numbers overlap."""
    figure.canvas.draw()
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
    assert min(text.get_fontsize() for text in texts) >= 9
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert -0.02 <= box.x0 < box.x1 <= width + 0.02
    assert -0.02 <= box.y0 < box.y1 <= height + 0.02


LEARNED = {  # what the pages say that their models have learned
    "encoder_decoder": lambda names: (
        np.argmax(names["alignment"][:6], axis=1).tolist() == [5, 4, 3, 2, 1, 0]
    ),
    "transformer": lambda names: names["accuracy"] > 0.98,
    "pooling": lambda names: (
        [names["text"][i] for i in names["hops"].weights[0].argmax(axis=1)] == ["good", "film"]
    ),
    "local": lambda names: (
        abs(names["predicted"].weights.argmax(axis=1) - np.arange(12)[::-1]).max() <= 1
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("page", LEARNED)
def test_the_models_of_the_pages_learn_what_the_pages_say(page):
    assert LEARNED[page](first_example(page))


@pytest.mark.parametrize("name", [*of_devices.PICTURES, *of_numbers.PICTURES])
def test_pictures_from_numbers_are_drawn(name):
    draw = of_devices.PICTURES | of_numbers.PICTURES
    figure = drawing.styled(draw[name])()
    assert figure.get_figwidth() == panels.WIDTH
    assert_legible(figure)


def test_a_picture_is_saved_on_a_light_and_on_a_dark_ground(tmp_path, monkeypatch):
    monkeypatch.setattr(panels, "DOCS", tmp_path)
    (tmp_path / "images").mkdir()
    paths = panels.save("mesh", of_devices.mesh)
    grounds = [Image.open(path).convert("RGB").getpixel((2, 2)) for path in paths]
    assert [path.name for path in paths] == ["mesh.png", "mesh_dark.png"]
    assert grounds == [(255, 255, 255), (0x13, 0x14, 0x16)]


def size_of(path):
    with Image.open(path) as picture:
        return picture.size


def test_every_picture_is_small_used_and_has_a_dark_form_and_a_text():
    texts = {}
    for page in (README, *sorted(DOCS.rglob("*.md"))):
        text = page.read_text()
        shown = re.findall(r"!\[([^\]]*)\]\(([^)]+\.png)\)", text)
        shown += [(alt, src) for src, alt in re.findall(r'<img src="([^"]+)" alt="([^"]*)"', text)]
        texts |= {(page.parent / source).resolve(): alt for alt, source in shown}
    pictures = set((DOCS / "images").glob("*.png"))
    dark = {path for path in pictures if path.stem.endswith("_dark")}
    assert set(texts) == pictures - dark
    assert all(len(alt) >= 30 for alt in texts.values())
    for path in texts:
        assert size_of(path) == size_of(path.with_stem(f"{path.stem}_dark"))
    assert all(path.stat().st_size < 150_000 for path in pictures)


def test_the_examples_of_the_readme_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with tiny.untrained():
        flax_attn.train(  # by its first command
            "shapes_attention:quick",
            num_epochs=1,
            workdir="runs/shapes_attention",
            overrides=tiny.ATTENTION | tiny.SHAPES,
        )
    names = run_example(README.read_text())
    assert (names["context"].shape, names["weights"].shape) == ((2, 3, 4), (2, 3, 5))
    assert names["prediction"].outputs.shape == (4, 100, 1)
    assert names["date"].outputs == ["1976-07-04"]
    assert names["date"].attention["alignment"][0].shape == (10, 11)
    assert (tmp_path / "attention.png").stat().st_size > 10_000


def test_attention_of_jax_and_flax_is_what_the_table_of_the_readme_says():
    """An empty row, NaN in a masked value, and whether weights are returned."""
    query, key, value = np.random.default_rng(0).normal(size=(3, 1, 3, 2, 4)).astype(np.float32)
    mask = np.array([[True, True, False], [False] * 3, [True, True, False]])[None, None]
    mean = np.broadcast_to(value[0].mean(axis=0), (2, 4))
    broken = np.where(np.arange(3)[:, None, None] == 2, np.nan, value)  # the value of a masked key

    context, weights = attention.dot_product_attention(query, key, broken, mask=mask)
    assert np.isfinite(context).all()
    assert not context[:, 1].any()
    assert not weights[:, :, 1].any()
    for attend in (jax.nn.dot_product_attention, nn.dot_product_attention):
        np.testing.assert_allclose(attend(query, key, value, mask=mask)[0, 1], mean, atol=1e-6)
        assert np.isnan(attend(query, key, broken, mask=mask)).all()

    layer = nn.MultiHeadDotProductAttention(2)
    x = query[..., 0, :]
    variables = layer.init(jax.random.key(0), x)
    assert layer.apply(variables, x, mask=mask).shape == x.shape
    _, sown = layer.apply(variables, x, mask=mask, sow_weights=True, mutable=["intermediates"])
    np.testing.assert_allclose(sown["intermediates"]["attention_weights"][0][:, :, 1], 1 / 3)
    _, captured = layer.apply(variables, x, capture_intermediates=True)
    assert {"query", "key", "value"} <= set(captured["intermediates"])


def test_heads_are_ablated_under_jit_by_one_program():
    x = jax.random.normal(jax.random.key(0), (1, 3, 4))
    layer = nn.Sequential([attention.MultiHeadAttention(2)])
    variables = layer.init(jax.random.key(1), x)
    traces = []

    @jax.jit
    def scaled(factors):
        traces.append(factors)
        with heads.scaled({"layers_0": factors}):
            return layer.apply(variables, x).context

    with heads.cut({"layers_0": [0]}):
        ablated = jax.jit(layer.apply)(variables, x).context
    np.testing.assert_allclose(scaled(np.array([0.0, 1.0])), ablated, atol=1e-6)
    assert np.abs(scaled(np.array([1.0, 0.0])) - ablated).max() > 1e-3
    assert len(traces) == 1


@pytest.mark.parametrize("page", ["scale-out", "accelerators", "training"])
def test_the_example_of_a_page_runs(page):
    assert run_example((DOCS / f"{page}.md").read_text())


@pytest.mark.slow
def test_the_example_of_the_page_on_language_models_runs(tmp_path, monkeypatch, no_pictures):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(flax_attn, "train", smaller(flax_attn.train))
    names = run_example((DOCS / "language_models.md").read_text())
    assert len(names["generated"].texts[0]) == len("Ka") + 60


def test_every_page_is_found_from_the_readme():
    reached, left = set(), [README]
    while left:
        page = left.pop()
        if page not in reached:
            reached.add(page)
            left += [path for path in targets(page) if path.suffix == ".md"]
    assert not set(DOCS.rglob("*.md")) - reached
    index = targets(DOCS / "index.md")
    assert DOCS / "index.md" in targets(README)
    for page in PAGES:
        assert DOCS / "attention" / f"{page}.md" in index


SMALLER = {  # of the configs that a page trains, what costs time and shows in nothing on the page
    "shapes_cnn": {"model.num_layers": 1},
    "shapes_attention": {"model.key_features": 8},
    "text_csv": tiny.TEXTS,
    "reverse_bahdanau": tiny.PAIRS,
    "mnist_mlp": {"model.hidden_features": 8},
    "names": {"model.features": 16, "data.num_lines": 400, "steps_per_epoch": 10},
}


def smaller(train):
    """`train` with models that are smaller still than those of the page."""

    def train_smaller(config, *args, overrides=None, **options):
        overrides = (overrides or {}) | SMALLER.get(config.partition(":")[0], {})
        return train(config, *args, overrides=overrides or None, **options)

    return train_smaller


@pytest.mark.parametrize("page", GUIDES)
def test_the_blocks_of_a_guide_run_one_after_another(page, tmp_path, monkeypatch, no_pictures):
    """A block that begins with the name of a file is that file; the others run in one namespace, in
    the same folder.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(flax_attn, "train", smaller(flax_attn.train))
    before, names = set(sys.modules), {}
    text = (DOCS / f"{page}.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) > 5
    for block in blocks:
        # as the fixture `symbolic_sizes`
        unchecked = "flax_attn.export(" in block
        monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", unchecked)
        name = re.match(r"# (\w+\.py)\n", block)
        if name:
            (tmp_path / name[1]).write_text(block)
        else:
            exec(compile(block, f"{page}.md: {block.splitlines()[0]}", "exec"), names)
    for module in set(sys.modules) - before:  # those of the page
        if (tmp_path / f"{module}.py").exists():
            del sys.modules[module]
    assert (tmp_path / "runs").is_dir()
    assert names["figure"].axes
    if page == "python":
        (events,) = (tmp_path / "runs" / "tensorboard").iterdir()
        assert b"valid/mse/seed_0" in events.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("page", BRIDGES)
def test_the_models_of_a_bridge_learn_where_to_attend(page, tmp_path, monkeypatch):
    if page == "equinox":
        pytest.importorskip("equinox")
    monkeypatch.chdir(tmp_path)
    names = run_example((DOCS / f"{page}.md").read_text())
    assert names["losses"][-1] < names["losses"][0] / 4
    assert names["own"] > 0.9
    assert (tmp_path / "one_head.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    "page",
    [README, *sorted(DOCS.rglob("*.md")), *sorted(DOCS.parent.glob("C*.md"))],
    ids=lambda path: path.stem,
)
def test_links_lead_to_files_and_headings(page):
    for path, anchor in links(page):
        is_live = path.parent == live_pages.FOLDER and path.stem in live_pages.PAGES
        assert path.exists() or is_live, f"{page.name} links to {path}, which is not there"
        if anchor:
            assert anchor in anchors(path), (
                f"{page.name} links to #{anchor} of {path.name}, which has no such heading"
            )


def links(page):
    """The relative links of a page: the paths that they lead to, each with the heading, or ''."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    addresses = re.findall(r"\[[^\]]*\]\(\s*([^)\s]+)\s*\)", text) + re.findall(
        r'(?:src|href)="([^"]+)"', text
    )
    local = [link.partition("#") for link in addresses if not re.match(r"[a-z]+:", link)]
    return [((page.parent / path).resolve() if path else page, anchor) for path, _, anchor in local]


def targets(page):
    return {path for path, _ in links(page)}


def anchors(page):
    """Returns the headings of a page as links name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_live_pages_are_linked():
    linked = set().union(*(targets(page) for page in DOCS.rglob("*.md")))
    assert {live_pages.FOLDER / f"{name}.html" for name in live_pages.PAGES} <= linked


def test_pictures_are_as_new_as_their_sources():
    """`python -m docs.fresh` draws them again."""
    record = json.loads(fresh.RECORD.read_text())
    assert [name for name in fresh.PICTURES if record.get(name) != fresh.digest(name)] == []

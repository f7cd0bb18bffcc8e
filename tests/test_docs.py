"""Every example in the pages runs as it stands, and leaves the weights that its picture shows."""

import numpy as np
import pytest

from docs.draw import DOCS, PAGES, run_example

SHORT = ("attend", "self_attention")


@pytest.mark.parametrize(
    "page",
    [page if page in SHORT else pytest.param(page, marks=pytest.mark.full) for page in PAGES],
)
def test_the_example_of_a_page_runs(page):
    text = (DOCS / "attention" / f"{page}.md").read_text()
    pictures = run_example(text)["pictures"]
    assert len(pictures) >= 2
    for weights in pictures.values():
        weights = np.asarray(weights)
        assert weights.ndim == 2
        assert weights.min() >= 0
        assert (weights.sum(axis=1) < 1 + 1e-5).all()
        assert weights.max() > 0.05
    assert f"![Weights of the example](../images/{page}.png)" in text
    assert f"`python -m docs.draw {page}`" in text
    assert (DOCS / "images" / f"{page}.png").is_file()


def test_the_library_examples_of_the_readme_run():
    readme = (DOCS.parent / "README.md").read_text()
    names = run_example(readme)
    assert (names["context"].shape, names["weights"].shape) == ((2, 3, 4), (2, 3, 5))
    for page in PAGES:
        assert f"docs/attention/{page}.md" in readme

"""The pages of the API: every public name has an entry, with an example that runs."""

import doctest
import pkgutil
import re

import numpy as np
import pytest
from jaxtyping import Array, Float

from docs._ext.docstrings import as_rst, change_signature, defaults, shapes
from docs._ext.names import public_names
from docs.draw import DOCS
from flax_attn.attention import Across

API = DOCS / "api"
PAGES = sorted(path.stem for path in API.glob("*.rst") if path.stem != "index")

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
ENTRY = re.compile(r"^\.\. (currentmodule|autofunction|autoclass|autoexception):: (\S+)$", re.M)
MADE_BY = {  # what makes a value of a class that nobody calls
    "Attended": "attend(",
    "Edges": "edges(",
    "Form": "form_of(",
    "Generated": "generate(",
    "KeyValueCache": "init_cache(",
    "Prediction": "predict(",
    "Result": "check_attention(",
    "Run": "run.",
    "ScoreParts": "score_parts(",
    "SlidingCache": "init_cache(",
    "StateCache": "init_cache(",
    "UsageError": "load(",
}


def entries(text: str) -> dict[str, str]:
    """Returns the full name of each entry of a page, with what stands below it."""
    module, below = "", {}
    _, *parts = ENTRY.split(text)
    for kind, name, content in zip(parts[::3], parts[1::3], parts[2::3]):
        if kind == "currentmodule":
            module = name
        else:
            below[f"{module}.{name}"] = content
    return below


ENTRIES = {
    name: content
    for page in PAGES
    for name, content in entries((API / f"{page}.rst").read_text()).items()
}


def test_every_public_name_has_an_entry():
    assert sorted(ENTRIES) == sorted(public_names().values())


@pytest.mark.parametrize("name", ENTRIES)
def test_an_entry_has_a_short_example_of_its_name(name):
    lines = re.findall(r"^   (?:>>>|\.\.\.) .*$", ENTRIES[name], re.MULTILINE)
    assert 1 <= len(lines) <= 5
    own = name.rpartition(".")[2]
    assert MADE_BY.get(own, own) in "\n".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch, symbolic_sizes, no_pictures):
    monkeypatch.chdir(tmp_path)
    text = (API / f"{page}.rst").read_text()
    test = doctest.DocTestParser().get_doctest(text, {}, page, f"{page}.rst", 0)
    assert test.examples
    said = []
    with np.printoptions():  # an example may change them
        results = doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=said.append)
    assert results.failed == 0, "".join(said)


def test_a_docstring_becomes_restructured_text():
    assert as_rst("A `hard` one.\n\n    w = f(k)  for `k`\n") == [
        "A :py:obj:`hard <flax_attn.attention.hard>` one.",
        "",
        "",
        ".. code-block:: text",
        "",
        "    w = f(k)  for `k`",
        "",
    ]
    assert ".. code-block:: python" in as_rst("One.\n\n    attend(query, key, value)\n")
    assert as_rst("Args:\n    query, key: `(..., q, d)`, and\n        more.\n") == [
        "",
        ".. rubric:: Args",
        "",
        "",
        "``query``, ``key``",
        "    ``(..., q, d)``, and",
        "    more.",
        "",
    ]
    assert as_rst("| a | b |\n|---|---|\n| `1` | 2 |\n") == [
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "",
        "   * - a",
        "     - b",
        "   * - ``1``",
        "     - 2",
        "",
    ]


def test_shapes_and_defaults_are_those_of_the_code():
    def score(query: Float[Array, "*b q d"], number: int) -> Float[Array, " q"] | None: ...

    assert shapes(score) == "``query`` ``(..., q, d)``, result ``(q,)``"
    assert shapes(len) == ""
    assert defaults(Across) == {"mesh": "None", "axis": "'sequence'", "ring": "None"}
    options = (
        "activation=nn.relu, gated=False, use_bias=True, dropout_rate=0.0, dtype=None, "
        "param_dtype=jnp.float32, precision=None, across=None"
    )
    of_nnx = "rngs, deterministic=False, in_features, kernel_metadata=NO_METADATA"
    for module, expected in {
        "flax_attn.attention": f"(features, {options})",
        "flax_attn.attention.nnx": f"(features, {options}, *, {of_nnx}, bias_metadata=NO_METADATA)",
    }.items():
        layer = pkgutil.resolve_name(f"{module}.FeedForward")
        made = change_signature(None, "class", layer.__name__, layer, None, "(*args)", "")
        assert made == (expected, "")

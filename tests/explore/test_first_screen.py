"""What a page chooses before a reader does: its first example, and the name of the normaliser.

Also what it has to know as Python does: the normalisers, and the shapes of training.
"""

import json
import subprocess
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import flax_attn.page
from flax_attn.attention import masked_softmax, sparsemax
from flax_attn.data import shapes
from flax_attn.explore import under_lens
from flax_attn.tasks import asking
from tests.explore import living

pytestmark = living.needs_node

PAGE = Path(flax_attn.page.__file__).parent
EXAMPLES = """
const kinds = ["triangle", "triangle", "box", "box"];
const marks = kinds.map((kind, i) => {
  const center = 10 + 20 * i;
  return { kind, center, first: center - 4, last: center + 4, height: 5 };
});
const examples = [NaN, 0.2, 0.5].map((largest) => ({ marks, largest }));
const weights = ({ largest }) => ({ rows: 100, columns: 1, at: () => largest });
"""


def said(code):
    """What a script of the page's modules prints, as JSON."""
    command = [living.NODE, "--input-type=module", "-e", code]
    done = subprocess.run(command, cwd=PAGE, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_an_example_with_weights_that_are_no_numbers_is_the_last_to_begin_with():
    begin = 'import { widest } from "./shapes/numbers.mjs";'
    chosen = "[widest(examples, weights), widest(examples.slice(0, 1), weights)]"
    assert said(f"{begin} {EXAMPLES} console.log(JSON.stringify({chosen}));") == [1, 0]


@pytest.mark.parametrize("count", [25, 50, 100])
def test_a_share_is_of_the_places_that_rows_and_columns_stand_for(count):
    """Every position attends to itself alone, so a shape puts all of its weight on itself."""
    begin = (
        'import { shareOn } from "./shapes/numbers.mjs"; const shape = [{ center: 50, width: 4 }];'
    )
    own = f"{{ rows: {count}, columns: {count}, at: (q, k) => Number(q === k) }}"
    assert said(f"{begin} console.log(shareOn({own}, shape, shape));") == 1


@pytest.mark.parametrize(
    ("settings", "visible"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"reach": 2}, [1, 2, 3, 4, 5]),
        ({"reach": 0}, [3]),
        ({"causal": True}, [0, 1, 2, 3]),
        ({"hidden": [0, 4]}, [1, 2, 3, 5]),
        ({"reach": 1, "causal": True, "hidden": [3]}, [2]),
    ],
)
def test_a_key_is_visible_within_the_reach_of_its_query(settings, visible):
    whole = json.dumps({"hidden": [], "reach": None, "causal": False} | settings)
    begin = 'import { isVisible } from "./controls/settings.mjs";'
    keys = f"[0, 1, 2, 3, 4, 5].filter((key) => isVisible(3, key, {whole}))"
    assert said(f"{begin} console.log(JSON.stringify({keys}));") == visible


def reply_with(weights, scores):
    """A reply of a model with one query, as the page gets it."""
    arrays = (
        {"shape": [1, 1, len(row)], "data": np.asarray(row).tolist()} for row in (weights, scores)
    )
    return dict(zip(("attention", "scores"), ({"own": array} for array in arrays)))


def test_a_normaliser_is_named_where_it_alone_makes_the_weights():
    spread, sharp = jnp.array([2.0, 1.5, 1.0, 0.5]), jnp.array([9.0, 0.0, 0.0, 0.0])
    replies = [
        reply_with(masked_softmax(spread), spread),
        reply_with(sparsemax(spread), spread),
        reply_with(masked_softmax(sharp), sharp),  # others would make these weights, too
        reply_with(masked_softmax(spread), spread + jnp.arange(4)),  # none makes them
    ]
    begin = 'import { normalizerIn } from "./pictures/formula.mjs";'
    names = f"{json.dumps(replies)}.map((reply) => normalizerIn([reply]))"
    assert said(f"{begin} console.log(JSON.stringify({names}));") == [
        "softmax",
        "sparsemax",
        None,
        None,
    ]


def test_the_page_has_the_constants_of_the_library():
    begin = """
import { NORMALIZERS } from "./controls/settings.mjs";
import { CENTERS, HEIGHTS, LENGTH } from "./shapes/numbers.mjs";
import { normalizers } from "./pictures/normalizers.mjs";
"""
    names = "[NORMALIZERS, CENTERS, HEIGHTS, LENGTH, normalizers.top_k.formula]"
    offered, centers, heights, length, top = said(f"{begin} console.log(JSON.stringify({names}));")
    assert tuple(offered) == asking.NORMALIZERS
    assert tuple(centers) == shapes.CENTER_RANGE
    assert tuple(heights) == shapes.HEIGHT_RANGE
    assert length == shapes.LENGTH
    assert f"the {under_lens.TOP} largest" in top

"""What a page chooses before a reader does: its first example, and the name of the normaliser."""

import json
import subprocess
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import flax_attn.analysis
from flax_attn.attention import masked_softmax, sparsemax
from tests.explore import living

pytestmark = living.needs_node

PAGE = Path(flax_attn.analysis.__file__).parent / "page"
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
    begin = 'import { widest } from "./try_shapes.mjs";'
    chosen = "[widest(examples, weights), widest(examples.slice(0, 1), weights)]"
    assert said(f"{begin} {EXAMPLES} console.log(JSON.stringify({chosen}));") == [1, 0]


def name_of(weights, scores):
    """The name of the normaliser that makes these weights, as the page has it."""
    arrays = (
        {"shape": [1, 1, len(row)], "data": np.asarray(row).tolist()} for row in (weights, scores)
    )
    reply = dict(zip(("attention", "scores"), ({"own": array} for array in arrays)))
    begin = 'import { normalizerIn } from "./try_formula.mjs";'
    return said(f"{begin} console.log(JSON.stringify(normalizerIn([{json.dumps(reply)}])));")


def test_a_normaliser_is_named_where_it_alone_makes_the_weights():
    spread, sharp = jnp.array([2.0, 1.5, 1.0, 0.5]), jnp.array([9.0, 0.0, 0.0, 0.0])
    assert name_of(masked_softmax(spread), spread) == "softmax"
    assert name_of(sparsemax(spread), spread) == "sparsemax"
    assert name_of(masked_softmax(sharp), sharp) is None  # others would make them, too
    assert name_of(masked_softmax(spread), spread + jnp.arange(4)) is None  # none makes them

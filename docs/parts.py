"""Which lessons have a form for their exercise, or a picture that answers.

`PARTS` says which, and the facts that they need of the lesson. `_static/course/NAME.js` says what
they do. `_ext/course.py` puts them into the pages.
"""

import json

import numpy as np

# By lesson and part, an expression that the lesson computes: the facts that the part needs.
PARTS = {
    "01_soft_dictionary": {
        "exercise": "None",
        "picture": "{'scores': scores, 'prices': prices}",
    },
    "02_averaging_what_is_similar": {
        "exercise": "{'times': read_at, 'readings': readings}",
        "picture": "{'times': read_at, 'readings': readings}",
    },
    "03_scores": {
        "exercise": "None",
        "picture": "{'sizes': sizes, 'means': means, 'products':"
        " (lambda query, keys: [(keys * query)[:, :d].sum(axis=1) for d in sizes])"
        "(*np.split(np.random.default_rng(0).normal(size=(17, 1024)), [1]))}",
    },
    "04_masks": {"exercise": "None"},
    "04a_from_numpy_to_flax": {"exercise": "None"},
    "05_one_layer_that_sees_everything": {
        "exercise": "None",
        "picture": "{'params': jax.tree.map(lambda array: array.round(4), everywhere_params),"
        " 'shapes': jax.tree.map(lambda array: array[125], examples.shapes)._asdict()}",
    },
    "08_which_words_mattered": {
        "exercise": "{'share': np.mean(weights[0].argmax(axis=1) == effects[0].argmax(axis=1))}",
        "picture": "{'words': WORDS, 'review': new[0], 'networks': ["
        "jax.tree.map(lambda array: array.round(4), own['params']) for own in networks]}",
    },
    "09_encoder_and_decoder": {
        "exercise": "{'words': [is_right(kept[100], y).all(axis=1).mean()"
        " for y in (target, None)]}",
    },
    "10_transformer_block": {"exercise": "None"},
    "11_small_gpt": {"exercise": "None"},
    "12_sparse_hard_local": {"exercise": "None"},
    "15_which_head_does_it": {"exercise": "{'falls': effects['blocks_0/attention']}"},
    "16_images_as_patches": {"exercise": "None"},
    "17_what_todays_models_changed": {"exercise": "None"},
    "18_a_memory_that_forgets": {"exercise": "None"},
}


def box(part: str, facts: object) -> str:
    """Returns the place of a part in a page, with its facts."""
    script = f'<script type="application/json">{as_json(facts)}</script>'
    return f'<div class="part" data-part="{part}">{script}</div>'


def as_json(facts: object) -> str:
    """Facts as JSON. Arrays are lists of the shortest numbers that are read back as the same."""
    shortest = lambda array: np.asarray(array).astype(str).astype(float).tolist()
    return json.dumps(facts, default=shortest, separators=(",", ":"), allow_nan=False)

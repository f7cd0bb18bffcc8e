import numpy as np

from flax_attn.analysis.texts import attention_map
from flax_attn.analysis.token_weights import over_tokens


def test_hops_are_not_taken_for_queries():
    weights = np.array([[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.2, 0.8, 0.0]])
    np.testing.assert_allclose(over_tokens("hops", weights, 2), [0.4, 0.6])
    np.testing.assert_allclose(over_tokens("attention", weights, 2), [0.5, 0.5])
    assert attention_map(["a", "b"], weights, True, "title").axes[0].get_ylabel() == "hop"

import itertools

import jax
import numpy as np

from flax_attn.models.initializers import INITIALIZATIONS


def test_initialisations_are_pytorchs_and_flaxs():
    torch, flax = INITIALIZATIONS["torch"], INITIALIZATIONS["flax"]
    key = jax.random.key(0)
    kernel = torch.kernel(key, (400, 50))
    assert 0.045 < np.abs(kernel).max() <= 0.05
    np.testing.assert_allclose(np.std(torch.embedding(key, (300, 300))), 1, atol=0.02)
    recurrent = flax.recurrent_kernel(4)(key, (4, 12))
    gates = np.split(np.asarray(recurrent), 3, axis=1)
    for gate in gates:
        np.testing.assert_allclose(gate @ gate.T, np.eye(4), atol=1e-5)
    for gate, other in itertools.combinations(gates, 2):
        assert np.abs(gate - other).max() > 0.1
    np.testing.assert_allclose(np.std(flax.kernel(key, (400, 50))), 0.05, atol=0.003)

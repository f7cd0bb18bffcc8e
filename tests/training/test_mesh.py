import jax
import numpy as np
import pytest

from flax_attn.training import mesh


@pytest.mark.parametrize(
    ("devices", "seeds", "rows", "shape"),
    [
        (1, 5, 7, (1, 1)),
        (8, 8, 1, (8, 1)),
        (8, 1, 128, (1, 8)),
        (8, 4, 128, (4, 2)),
        (8, 2, 100, (2, 4)),
        (6, 3, 128, (3, 2)),
        (6, 4, 9, (2, 3)),
        (12, 6, 4, (6, 2)),
        (12, 8, 9, (4, 3)),
    ],
)
def test_seeds_come_first_and_rows_second(devices, seeds, rows, shape):
    assert mesh.shape_of_mesh(devices, seeds, rows) == shape


@pytest.mark.parametrize(("devices", "seeds", "rows"), [(8, 1, 100), (7, 2, 16), (3, 1, 128)])
def test_devices_that_do_not_divide_the_work_have_no_mesh(devices, seeds, rows):
    assert mesh.shape_of_mesh(devices, seeds, rows) is None


def test_the_numbers_that_fit():
    assert mesh.numbers_that_fit(8, 1, 100) == [1, 2, 4, 5]
    assert mesh.numbers_that_fit(8, 3, 4) == [1, 2, 3, 4, 6]
    assert mesh.numbers_that_fit(12, 3, 4, multiple=4) == [4, 12]


def test_a_mesh_has_as_many_devices_as_fit():
    whole = mesh.make_mesh(num_seeds=1, batch_size=3)
    assert whole.size == 1
    assert whole.axis_names == ("seed", "data")


def test_devices_that_share_a_sequence_have_a_mesh():
    assert mesh.numbers_that_fit(8, 1, 4, sequence=2) == [2, 4, 8]
    assert mesh.numbers_that_fit(24, 3, 4, sequence=2, multiple=3) == [6, 12, 24]
    with pytest.raises(ValueError, match=r"from 1 to 1 \(the devices\), got 2"):
        mesh.make_mesh(1, 4, sequence=2)


def test_arrays_are_put_as_they_are():
    devices = mesh.make_mesh(2, 4)
    tree = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True, False])}
    on_mesh = mesh.put(devices, tree, mesh.SEEDS)
    assert jax.tree.all(jax.tree.map(np.array_equal, tree, jax.device_get(on_mesh)))
    assert on_mesh["a"].sharding.spec == mesh.SEEDS


def test_without_a_mesh_a_batch_stays_whole():
    batch = {"inputs": np.ones((3, 2))}
    assert mesh.cut_rows(batch) is batch
    assert mesh.keep_whole(batch) is batch


def test_all_seeds_at_once_get_their_own_of_each_mapped_argument():
    states, keys = np.arange(3.0), np.arange(3.0) * 10
    for map_over in (mesh.vectorized, mesh.sequential):
        mapped = map_over(lambda state, key, factor, shift: (state + key) * factor + shift, 2)
        np.testing.assert_allclose(jax.jit(mapped)(states, keys, 2.0, 1.0), [1, 23, 45])

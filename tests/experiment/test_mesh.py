"""Training on a mesh of virtual devices, in processes that have several."""

import pytest

from tests import on_devices, test_configs


def on(num_devices, *arguments, **environment):
    """Runs a function of `on_mesh` in a process with virtual devices. Returns what it prints."""
    return on_devices.on(num_devices, "tests.experiment.on_mesh", *arguments, **environment)


def test_seeds_on_eight_devices_are_those_of_one_to_the_last_bit():
    result = on(8, "seeds")
    assert result["mesh"] == {"seed": 8, "data": 1, "sequence": 1}
    assert result["params"] == result["scores"] == 0
    assert result["traces"] == 1


def test_a_batch_on_eight_devices_trains_as_on_one():
    result = on(8, "rows", JAX_ENABLE_X64="1")
    assert result["mesh"] == {"seed": 1, "data": 8, "sequence": 1}
    assert max(result["params"], result["scores"]) <= 1e-12


@pytest.mark.full
def test_seeds_and_rows_together():
    result = on(8, "both", JAX_ENABLE_X64="1")
    assert result["mesh"] == {"seed": 4, "data": 2, "sequence": 1}
    assert max(result["params"], result["scores"]) <= 1e-12


@pytest.mark.full
@pytest.mark.parametrize("sequence", [2, 4])
def test_devices_that_share_sequences(sequence):
    assert on(8, "sequences", sequence, JAX_ENABLE_X64="1") <= 1e-12


@pytest.mark.full
def test_single_precision_over_four_steps():
    result = on(8, "few_rows")
    assert max(result["params"], result["scores"]) <= 1e-6


@pytest.mark.full
def test_what_devices_send_and_hold():
    """Seeds send nothing within a step. A cut batch sends two sums."""
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    options = devices | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    assert on(8, "sent", 8, **options) == {"all-gather": 1}
    assert on(8, "sent", 1, **options) == {"all-reduce": 2}
    on_one, on_eight = on(8, "memory", **options)
    assert on_eight <= on_one / 6


@pytest.mark.full
@pytest.mark.parametrize("name", test_configs.NAMES)
def test_every_config_on_two_by_two(name, manual_dir, tmp_path):
    result = on(4, "one_config", name, manual_dir, tmp_path)
    assert result["scores"] <= (1e-12 if result["is_double"] else 1e-5)

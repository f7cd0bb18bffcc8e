"""Training on a mesh of virtual devices, in processes that have several."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import flax_attn
from tests import faults, on_devices, test_configs


def on(num_devices, *arguments, **environment):
    """Runs a function of `on_mesh` in a process with virtual devices. Returns what it prints."""
    return on_devices.on(num_devices, "tests.experiment.on_mesh", *arguments, **environment)


@pytest.mark.slow
def test_seeds_on_eight_devices_are_those_of_one_to_the_last_bit():
    result = on(8, "seeds")
    assert result["mesh"] == {"seed": 8, "data": 1}
    assert result["params"] == result["scores"] == 0
    assert result["traces"] == 1


def test_a_batch_on_eight_devices_trains_as_on_one():
    result = on(8, "rows", JAX_ENABLE_X64="1")
    assert result["mesh"] == {"seed": 1, "data": 8}
    assert max(result["params"], result["scores"]) <= 1e-12


@pytest.mark.slow
def test_seeds_and_rows_together():
    result = on(8, "both", JAX_ENABLE_X64="1")
    assert result["mesh"] == {"seed": 4, "data": 2}
    assert max(result["params"], result["scores"]) <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("sequence", [2, 4])
def test_devices_that_share_sequences(sequence):
    assert on(8, "sequences", sequence, JAX_ENABLE_X64="1") <= 1e-12


@pytest.mark.slow
def test_a_run_goes_on_with_another_number_of_devices_a_sequence(tmp_path):
    """By the command, with the numbers of a run in which each sequence is on one device."""
    images = test_configs.write_own("images_folder", tmp_path)
    task = ["images_folder", f"--data.file={images}", "--batch_size=16", "--steps_per_epoch=2"]
    task += [f"--model.{key}=8" for key in ("features", "hidden_features", "patch_size")]
    task += ["--model.num_blocks=1", "--model.num_heads=2", "--optimizer.schedule=constant"]
    starts = [("one", 2, 1), ("shared", 1, 2), ("shared", 2, 4)]
    shapes = {1: "1 x 8 (seed x data)", 2: "1 x 4 x 2 (seed x", 4: "1 x 2 x 4 (seed x"}
    for name, epochs, sequence in starts:
        options = [f"--num_epochs={epochs}", f"--sequence={sequence}"]
        environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
        command = [sys.executable, "-m", "flax_attn", "train", *task, *options]
        command += [f"--workdir={tmp_path / name}"]
        pipes = {"cwd": faults.ROOT, "capture_output": True, "text": True}
        done = subprocess.run(command, env=environment, timeout=240, **pipes)
        assert done.returncode == 0, done.stderr
        assert f"mesh: {shapes[sequence]}" in done.stdout
    read = lambda name: (tmp_path / name / "metrics.jsonl").read_text().splitlines()
    for row, other in zip(read("one"), read("shared"), strict=True):
        assert json.loads(row) == pytest.approx(json.loads(other), rel=1e-4)
    assert flax_attn.load(tmp_path / "shared").predict(np.zeros((2, 28, 20))).classes


@pytest.mark.slow
def test_single_precision_over_four_steps():
    result = on(8, "few_rows")
    assert max(result["params"], result["scores"]) <= 1e-6


@pytest.mark.slow
def test_what_devices_send_and_hold():
    """Seeds send nothing within a step. A cut batch sends two sums."""
    devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    options = devices | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    assert on(8, "sent", 8, **options) == {"all-gather": 1}
    assert on(8, "sent", 1, **options) == {"all-reduce": 2}
    on_one, on_eight = on(8, "memory", **options)
    assert on_eight <= on_one / 6


@pytest.fixture(scope="module")
def configs(manual_dir, tmp_path_factory):
    """Returns a process that trains configs, by name, on four devices."""
    arguments = 4, "tests.experiment.on_mesh", "configs", manual_dir, tmp_path_factory.mktemp("own")
    with on_devices.started(*arguments) as process:
        yield process
        process.stdin.close()


KINDS = {}  # of the configs of one task with one model, the last: their own files are small
for own in map(test_configs.resolved, test_configs.NAMES):
    KINDS[own.task.name, own.model["name"]] = own.name


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS.values())
def test_every_model_of_every_task_on_two_by_two(name, configs):
    print(name, file=configs.stdin, flush=True)
    result = json.loads(configs.stdout.readline())
    assert result["scores"] <= (1e-12 if result["is_double"] else 1e-5)

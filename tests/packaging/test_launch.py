"""The files of `launch/`. They parse, and `train` takes their commands. What launchers tell their
processes makes these train one run.
"""

import os
import re
import shutil
import signal
import subprocess
import time

import pytest
import yaml

from flax_attn.__main__ import parse
from tests import faults
from tests.processes import TASK, end, free_port, start

LAUNCH = faults.ROOT / "launch"
SHELL = sorted(path.name for path in LAUNCH.glob("*.sh"))


@pytest.mark.parametrize("name", SHELL)
def test_shell_files_parse(name):
    subprocess.run(["bash", "-n", LAUNCH / name], check=True)


@pytest.mark.parametrize("name", sorted(path.name for path in LAUNCH.iterdir() if path.is_file()))
def test_commands_are_ones_that_train_takes(name):
    text = (LAUNCH / name).read_text()
    if name.endswith(".yaml"):
        assert yaml.safe_load(text)
    command = re.search(r"train\.py,? (--distributed.*?)[\])\n]", text)[1]
    flags = [flag for flag in re.split(r",? ", command) if flag.startswith("--")]
    args = parse(["train", *flags])
    assert args.distributed
    assert all(flag.split("=")[0] in ("--distributed", "--config", "--workdir") for flag in flags)


def slurm(number):
    """Returns what `srun` tells the processes of a job on one node."""
    job = str(free_port())
    shared = {"SLURM_JOB_ID": job, "SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": str(number)}
    return [shared | {"SLURM_PROCID": str(i), "SLURM_LOCALID": str(i)} for i in range(number)]


def open_mpi_4(number):
    job = free_port() * 2**12
    shared = {
        "OMPI_MCA_orte_hnp_uri": f"{job}.0;tcp://127.0.0.1:{free_port()}",
        "OMPI_COMM_WORLD_SIZE": str(number),
    }
    names = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    return [shared | dict.fromkeys(names, str(i)) for i in range(number)]


@pytest.mark.slow
@pytest.mark.parametrize("launcher", [slurm, open_mpi_4])
def test_what_launchers_tell_makes_one_run(launcher, trained_alone, tmp_path):
    workdir = tmp_path / "run"
    processes = [start([*TASK, f"--workdir={workdir}"], own) for own in launcher(2)]
    codes, _, err = end(processes)
    assert codes == [0, 0], err
    assert faults.contents(workdir) == trained_alone


@pytest.mark.slow
def test_here_starts_all_and_ends_all(trained_alone, tmp_path):
    workdir = tmp_path / "run"
    command = [LAUNCH / "here.sh", "2", *TASK, f"--workdir={workdir}"]
    environment = os.environ | {"PORT": str(free_port())}
    options = {"cwd": faults.ROOT, "env": environment, "stderr": subprocess.PIPE, "text": True}
    done = subprocess.run(command, timeout=120, **options)
    assert done.returncode == 0, done.stderr
    assert faults.contents(workdir) == trained_alone
    shutil.rmtree(workdir)
    endless = [*command, "--num_epochs=10000", "--timeout=40"]  # the limit of a heartbeat, too
    process = subprocess.Popen(endless, start_new_session=True, **options)
    while not (workdir / "checkpoints" / "1.npz").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    children = subprocess.run(
        ["pgrep", "-f", str(workdir)], capture_output=True, text=True
    ).stdout.split()
    os.kill(max(int(child) for child in children if int(child) != process.pid), signal.SIGKILL)
    process.communicate(timeout=90)
    assert process.returncode != 0

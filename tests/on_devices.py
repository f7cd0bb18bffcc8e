"""Functions in processes with virtual devices."""

import json
import os
import subprocess
import sys

from tests import faults
from tests.quick_compiling import with_flags


def started(num_devices, module, *arguments, **environment):
    """Starts a function of a module, with its arguments, which reads and prints text."""
    devices = f"--xla_force_host_platform_device_count={num_devices}"
    environment = os.environ | {"XLA_FLAGS": with_flags() + " " + devices} | environment
    command = [sys.executable, "-m", module, *map(str, arguments)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=faults.ROOT, env=environment, **pipes)


def on(num_devices, module, *arguments, **environment):
    """Runs a function to its end, and returns what it prints as JSON."""
    with started(num_devices, module, *arguments, **environment) as process:
        out, _ = process.communicate()
    assert process.returncode == 0, out
    return json.loads(out.splitlines()[-1])

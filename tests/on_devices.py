"""Functions in processes with virtual devices."""

import json
import os
import subprocess
import sys

from tests import faults
from tests.quick_compiling import with_flags


def on(num_devices, module, *arguments, **environment):
    """Runs a function of a module, with its arguments, and returns what it prints as JSON."""
    devices = f"--xla_force_host_platform_device_count={num_devices}"
    environment = os.environ | {"XLA_FLAGS": with_flags() + " " + devices} | environment
    command = [sys.executable, "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=faults.ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])

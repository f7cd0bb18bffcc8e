"""What the modules of the page compute, by Node and without a browser."""

import json
import subprocess
from pathlib import Path

import flax_attn.page
from tests.explore import living

PAGE = Path(flax_attn.page.__file__).parent


def said(expression: str, before: str = ""):
    """The value of an expression as JSON; `before` imports what it needs."""
    code = f"{before} console.log(JSON.stringify({expression}));"
    command = [living.NODE, "--input-type=module", "-e", code]
    done = subprocess.run(command, cwd=PAGE, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)

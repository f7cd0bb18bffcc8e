"""What the modules of the page compute, by Node and without a browser."""

import json
import subprocess

from flax_attn.page.joining import FOLDER
from tests.explore import living


def said(expression: str, before: str = ""):
    """The value of an expression as JSON; `before` imports what it needs."""
    code = f"{before} console.log(JSON.stringify({expression}));"
    command = [living.NODE, "--input-type=module", "-e", code]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)

"""The site: the pages as they stand, the course with its outputs, and the API.

`python -m docs` builds it. The sources are all Markdown files of the repository, as they lie there.
So a relative link leads to the same file in the repository and on the site.
"""

import hashlib
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
# the kernels of the lessons import the package from here, too
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.getenv("PYTHONPATH")])])

from sphinx.application import Sphinx  # noqa: E402
from sphinx.config import Config  # noqa: E402

import flax_attn  # noqa: E402

project = "flax_attn"
version = release = flax_attn.__version__
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "docs._ext.docstrings",
    "docs._ext.navigation",
    "docs._ext.files",
    "docs._ext.formulas",
    "docs._ext.course",
    "docs._ext.access",
    "docs._ext.tables",
]
root_doc = "README"
include_patterns = ["*.md", "docs/**"]
exclude_patterns = ["docs/_build", "**.ipynb"]
exclude_patterns += [path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "docs"]
nitpicky = True

# Lessons
nb_execution_mode = "cache"
nb_execution_in_temp = True  # what a lesson writes is gone with it
nb_execution_timeout = 600  # seconds of a cell, on a machine that does other things, too
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
# of a host that runs notebooks, such as
# "https://colab.research.google.com/github/OWNER/NAME/blob/BRANCH/docs/course/", where a public
# repository has the built site; "" for none
notebooks_address = ""
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
html_math_renderer = "mathml"

# API
autodoc_typehints = "none"  # `docs._ext.docstrings` writes the shapes that are in them
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "special-members": "__call__"}
maximum_signature_line_length = 72
add_module_names = False
toc_object_entries_show_parents = "hide"

# The look
html_theme = "furo"
html_title = "flax_attn"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
templates_path = ["_templates"]
html_css_files = ["site.css"]
html_js_files = ["site.js", "formula.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_show_search_summary = False  # it would fetch pages, which a file:// page may not
html_use_index = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True


def choose_cache(app: Sphinx, config: Config) -> None:
    """Outputs of lessons are kept for one state of the package; another executes them again."""
    sources = sorted((ROOT / "flax_attn").rglob("*.py"))
    state = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:12]
    config.nb_execution_cache_path = str(Path(app.outdir).parent / "outputs" / state)


def setup(app: Sphinx) -> None:
    app.connect("config-inited", choose_cache)

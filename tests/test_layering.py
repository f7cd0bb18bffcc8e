"""Imports go one way: attention <- models <- experiment <- train.py; data, training and analysis stand apart."""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
BASE = {"flax_attn.errors", "flax_attn.run_directory"}  # plain Python, open to all
ALLOWED = {
    "attention": {"flax_attn.attention"},
    "models": {"flax_attn.attention", "flax_attn.models"},
    "data": {"flax_attn.data"},
    "training": {"flax_attn.training"},
    "analysis": {"flax_attn.analysis"},
    "tasks": {"flax_attn.tasks", "flax_attn.data", "flax_attn.training.metrics"},
}
OUTSIDE = {"attention": {"jax", "chex", "jaxtyping", "numpy"}}
OUTSIDE["layers"] = OUTSIDE["attention"] | {"flax"}


def imports(path):
    """Every module that a file imports, anywhere in it, by its full name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(ROOT).parent.parts if node.level else ()
            parts = [*package[: len(package) + 1 - node.level], *([node.module] if node.module else [])]
            yield from (".".join([*parts, alias.name]) for alias in node.names)


def files(*parts):
    return sorted((ROOT.joinpath(*parts)).rglob("*.py"))


def test_packages_import_only_what_they_may():
    seen = 0
    for package, allowed in ALLOWED.items():
        for path in files("flax_attn", package):
            for name in imports(path):
                if name.startswith("flax_attn"):
                    seen += 1
                    assert any(name.startswith(prefix) for prefix in allowed | BASE), f"{path} imports {name}"
    assert seen > 20


def test_the_functions_of_the_attention_library_know_jax_only_and_its_layers_flax_too():
    for path in files("flax_attn", "attention"):
        is_layer = path.parent.name == "layers"
        named_only = path == ROOT / "flax_attn" / "attention" / "__init__.py"  # it names the layers, and loads them when asked for
        for name in imports(path):
            top = name.split(".")[0]
            assert top in OUTSIDE["layers" if is_layer else "attention"] | sys.stdlib_module_names | {"flax_attn"}, f"{path} imports {name}"
            assert is_layer or named_only or not name.startswith("flax_attn.attention.layers"), f"{path} imports {name}"


def run(code):
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def test_attend_loads_no_flax_and_a_layer_does():
    code = "import sys; from flax_attn.attention import attend, {}; print('flax' in sys.modules)"
    assert run(code.format("masks")) == ["False"]
    assert run(code.format("MultiHeadAttention")) == ["True"]


def test_no_module_replaces_a_public_name():
    """Importing `package.name` sets the attribute `name` of the package to the module."""
    code = """
import importlib, pkgutil, types
import flax_attn.attention as package
public = {name: getattr(package, name) for name in package.__all__}
modules = [module.name for module in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in modules:
    importlib.import_module(name)
changed = [name for name in public if getattr(package, name) is not public[name]]
print(len(public), len(modules), changed, dir(package) == sorted(package.__all__))
"""
    public, modules, *changed = run(code)
    assert int(public) > 40
    assert int(modules) > 20
    assert changed == ["[]", "True"]


def test_each_outside_package_stays_in_its_place():
    for path in [*files("flax_attn"), *files("configs"), ROOT / "train.py"]:
        place = path.relative_to(ROOT).as_posix()
        for name in imports(path):
            top = name.split(".")[0]
            assert top not in ("torch", "tensorflow"), f"{place} imports {name}"
            if top == "ml_collections":
                assert place in ("flax_attn/experiment.py", "train.py") or place.startswith("configs/"), f"{place} imports {name}"
            if top == "matplotlib":
                assert place.startswith("flax_attn/analysis/"), f"{place} imports {name}"


def test_to_start_on_shapes_imports_no_figures_data_sets_or_checkpoints():
    code = "import sys; from flax_attn import experiment; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert "flax_attn.programs" in modules
    assert not {"matplotlib", "orbax.checkpoint", "tensorflow_datasets", "tokenizers", "sacrebleu"} & set(modules)


def test_the_walk_sees_imports_inside_functions_and_relative_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "flax_attn" / "data").mkdir(parents=True)
    module = tmp_path / "flax_attn" / "data" / "module.py"
    module.write_text("def f():\n    from torch import nn\nfrom . import shapes\nfrom ..models import cnn\nfrom .toy import make\n")
    assert sorted(imports(module)) == ["flax_attn.data.shapes", "flax_attn.data.toy.make", "flax_attn.models.cnn", "torch.nn"]

"""Imports go one way: attention <- attention.layers <- models <- tasks <- page <- experiment <-
explore <- commands. `data`, `training` and `runs` import none of these; `analysis` imports `runs`.
"""

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
# plain Python, open to all
BASE = {
    "flax_attn.errors",
    "flax_attn.files",
    "flax_attn.config_files",
    "flax_attn.platforms",
    "flax_attn.schema",
    "flax_attn.stopping",
    "flax_attn.types",
}
ROOMS = (
    "attention",
    "models",
    "data",
    "training",
    "runs",
    "analysis",
    "tasks",
    "page",
    "published",
    "experiment",
    "explore",
    "commands",
)
ALLOWED = {  # what a room may import besides itself
    "attention": set(),
    "models": {"attention"},
    "data": set(),
    "training": set(),
    "runs": set(),
    "analysis": {"runs"},
    "tasks": {"attention", "data", "models", "training.metrics", "runs", "analysis"},
    "page": {"runs", "analysis", "tasks", "experiment.config"},
    "published": {"attention", "data", "models", "runs", "tasks"},
    "experiment": {"attention", "data", "models", "training", "runs", "tasks", "published"},
    "explore": {"attention", "models", "runs", "tasks", "page", "published", "experiment"},
    "commands": {"data", "tasks", "runs", "analysis", "page", "published", "experiment", "explore"},
}
TOP = {  # what the files beside the rooms may import
    "__init__": {
        "flax_attn.experiment",
        "flax_attn.tasks",
        "flax_attn.analysis.plotting",
        "flax_attn.explore.showing",
        "flax_attn.circuits",
        "flax_attn.heads",
    },
    "__main__": {"flax_attn"},
    "circuits": {"flax_attn.attention", "flax_attn.models", "flax_attn.heads", "flax_attn.types"},
    "config_files": {"flax_attn.types"},
    "heads": {"flax_attn.attention", "flax_attn.models", "flax_attn.types"},
    "recipes": {"flax_attn.types"},
    "types": set(),
    "errors": set(),
    "schema": {"flax_attn.errors", "flax_attn.types"},
    "files": {"flax_attn.types"},
    "platforms": set(),
    "stopping": {"flax_attn.types"},
    "testing": {"flax_attn.types"},
}
OUTSIDE = {"attention": {"jax", "chex", "jaxtyping", "numpy"}}
OUTSIDE["layers"] = OUTSIDE["attention"] | {"flax"}


def imports(path):
    """Returns every module that a file imports, anywhere in it, by its full name."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(ROOT).parent.parts if node.level else ()
            parts = [
                *package[: len(package) + 1 - node.level],
                *([node.module] if node.module else []),
            ]
            yield from (".".join([*parts, alias.name]) for alias in node.names)


def files(*parts):
    return sorted((ROOT.joinpath(*parts)).rglob("*.py"))


def test_rooms_import_only_what_they_may():
    number = 0
    for room in ROOMS:
        allowed = BASE | {f"flax_attn.{other}" for other in ALLOWED[room] | {room}}
        for path in files("flax_attn", room):
            for name in imports(path):
                if name.startswith("flax_attn"):
                    number += 1
                    assert any(
                        name == prefix or name.startswith(prefix + ".") for prefix in allowed
                    ), f"{path} imports {name}"
    assert number > 100


def test_every_file_of_the_package_is_in_a_room_or_known():
    package = ROOT / "flax_attn"
    assert {path.name for path in package.iterdir() if (path / "__init__.py").exists()} == set(
        ROOMS
    )
    assert {path.stem for path in package.glob("*.py")} == set(TOP)
    for stem, allowed in TOP.items():
        for name in imports(package / f"{stem}.py"):
            known = any(name.startswith(prefix) for prefix in allowed | {"flax_attn.errors"})
            assert known or not name.startswith("flax_attn"), f"{stem} imports {name}"


def test_the_functions_of_the_attention_library_know_jax_only_and_its_layers_flax_too():
    for path in files("flax_attn", "attention"):
        is_layer = path.parent.name in ("layers", "nnx")
        # it names the layers, and loads them when asked for
        named_only = path == ROOT / "flax_attn" / "attention" / "__init__.py"
        for name in imports(path):
            top = name.split(".")[0]
            assert top in OUTSIDE[
                "layers" if is_layer else "attention"
            ] | sys.stdlib_module_names | {"flax_attn"}, f"{path} imports {name}"
            assert is_layer or named_only or not name.startswith("flax_attn.attention.layers"), (
                f"{path} imports {name}"
            )


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()


def test_attend_loads_no_flax_and_a_layer_does_but_not_nnx():
    code = "import sys"
    for names in ("attend, masks", "MultiHeadAttention, linen_attention_fn", "nnx"):
        code += f"; from flax_attn.attention import {names}"
        code += "; print('flax' in sys.modules, 'flax.nnx' in sys.modules)"
    assert run(code) == ["False", "False", "True", "False", "True", "True"]


def test_no_module_replaces_a_public_name():
    """Importing `package.name` sets the attribute `name` of the package to the module."""
    code = """
import importlib, pkgutil, types
import flax_attn.attention as package
public = {name: getattr(package, name) for name in package.__all__}
walked = pkgutil.walk_packages(package.__path__, package.__name__ + ".")
modules = [module.name for module in walked]
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
                known = (
                    "flax_attn/experiment/face.py",
                    "flax_attn/recipes.py",
                )
                assert place in known or place.startswith(("configs/", "flax_attn/configs/")), (
                    f"{place} imports {name}"
                )


def test_only_analysis_imports_matplotlib_and_never_pyplot():
    """Pyplot chooses a backend, which is the user's to choose."""
    num_imports = 0
    for path in [*files("flax_attn"), *files("configs"), ROOT / "train.py"]:
        names = [name for name in imports(path) if name.split(".")[0] == "matplotlib"]
        assert not names or path.is_relative_to(ROOT / "flax_attn" / "analysis"), f"{path}: {names}"
        assert not {"pyplot", "pylab", "use"} & {part for name in names for part in name.split(".")}
        assert "matplotlib.use(" not in path.read_text(), path
        num_imports += len(names)
    assert num_imports > 20


def test_to_start_on_shapes_imports_no_figures_data_sets_or_checkpoints():
    code = "import sys; from flax_attn import experiment; print(*sys.modules)"
    modules = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    assert "flax_attn.experiment.programs" in modules
    assert not {
        "matplotlib",
        "orbax",
        "tensorflow_datasets",
        "tokenizers",
        "sacrebleu",
    } & set(modules)


def test_to_predict_imports_no_figures_and_no_readers_of_data_sets():
    code = "import sys; from flax_attn.commands import predicting; print(*sys.modules)"
    modules = run(code)
    assert "flax_attn.experiment.loading" in modules
    assert not {"matplotlib", "tensorflow_datasets", "scipy", "tokenizers"} & set(modules)


def test_a_command_line_that_names_no_run_is_told_without_jax():
    code = "import sys; from flax_attn.__main__ import main; "
    code += "print(main(['predict', 'none', 'text']), 'jax' in sys.modules)"
    assert run(code) == ["2", "False"]


def test_the_walk_sees_imports_inside_functions_and_relative_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "flax_attn" / "data").mkdir(parents=True)
    module = tmp_path / "flax_attn" / "data" / "module.py"
    module.write_text(
        "def f():\n    from torch import nn\nfrom . import shapes\nfrom ..models "
        "import cnn\nfrom .toy import make\n"
    )
    assert sorted(imports(module)) == [
        "flax_attn.data.shapes",
        "flax_attn.data.toy.make",
        "flax_attn.models.cnn",
        "torch.nn",
    ]

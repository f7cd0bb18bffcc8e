"""One test for each line of `SECURITY.md`."""

import ast
import json
import os
import pickle
import re
import shutil
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import jax
import numpy as np
import pytest

import flax_attn
from flax_attn.__main__ import main
from flax_attn.data import ag_news, mnist, multi30k, sst, tinyshakespeare
from flax_attn.errors import UsageError
from flax_attn.explore.server import TOKEN, Explorer, open_explorer
from flax_attn.files import open_arrays
from flax_attn.tasks import user_files
from tests import tiny
from tests.published.tiny import write_gpt2

PACKAGE = Path(flax_attn.__file__).parent
NEVER = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "subprocess", "yaml"}
EXECUTE = {"eval", "exec", "__import__", "system", "popen", "import_module", "run_path"}
# the classes that a caller allows, the configs that a user names, and lazy imports
MAY_IMPORT = {"experiment/config.py", "config_files.py", "__init__.py", "attention/__init__.py"}
MAY_IMPORT |= {"__main__.py"}  # its own commands
OVERRIDES = tiny.SHAPES | tiny.CNN
TRAIN = ["train", "shapes_cnn:quick", "--num_epochs=1"]
TRAIN += [f"--{key}={value}" for key, value in OVERRIDES.items()]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    with tiny.untrained():
        return flax_attn.train("shapes_cnn:quick", workdir=path, num_epochs=1, overrides=OVERRIDES)


class Runs:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_1_the_package_neither_unpickles_nor_executes():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not NEVER & {alias.name.split(".")[0] for alias in node.names}, name
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in NEVER, name
            if isinstance(node, ast.Call):
                called = getattr(node.func, "id", getattr(node.func, "attr", ""))
                assert called not in EXECUTE or name in MAY_IMPORT, f"{name} calls {called}"
                for option in node.keywords:
                    is_false = isinstance(option.value, ast.Constant) and not option.value.value
                    assert option.arg != "allow_pickle" or is_false, name


def test_1_a_file_that_holds_a_pickle_is_refused(tmp_path):
    bad, folder = pickle.dumps(Runs(tmp_path / "ran")), write_gpt2(tmp_path / "model")
    (folder / "model.safetensors").write_bytes(bad)
    (tmp_path / "a.npy").write_bytes(bad)
    np.savez(tmp_path / "a.npz", x=np.array([Runs(tmp_path / "ran")], object))
    for read in (
        lambda: user_files.read_signals(tmp_path / "a.npy"),
        lambda: dict(open_arrays(tmp_path / "a.npz").__enter__()),
        lambda: flax_attn.load(folder),
    ):
        with pytest.raises((UsageError, ValueError)):
            read()
    assert not (tmp_path / "ran").exists()


def test_2_a_class_of_ones_own_is_imported_only_where_its_module_is_allowed(tmp_path, monkeypatch):
    code = f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
    code += "from flax_attn.models.cnn import CNN as Own\n"
    (tmp_path / "strange.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    own = OVERRIDES | {"model.name": "strange:Own"}
    with tiny.untrained():
        path = tmp_path / "run"
        flax_attn.train("shapes_cnn:quick", workdir=path, num_epochs=1, overrides=own)
    (tmp_path / "ran").unlink()
    del sys.modules["strange"]
    with pytest.raises(UsageError, match="strange"):
        flax_attn.load(path)
    assert not (tmp_path / "ran").exists()
    flax_attn.load(path, allow=["strange"])
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("command", ["report", "explore", "show"])
def test_3_no_file_under_the_name_of_a_config_is_run(run, tmp_path, monkeypatch, command):
    copy = shutil.copytree(run.path, tmp_path / "run")
    for folder in (tmp_path, copy):
        for name in ("shapes_cnn", "shapes_cnn.py"):
            (folder / name).write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.setattr(Explorer, "serve_forever", lambda self, *_: None)
    for folder in (tmp_path, copy):
        monkeypatch.chdir(folder)
        if command == "show":
            flax_attn.show(copy, model=False)
        else:
            more = ["-o", "r.html", "--no-model"] if command == "report" else ["--no-open"]
            assert main([command, str(copy), *more]) == 0
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["../victim.txt", "figures/../../victim.txt"])
def test_4_names_that_lead_elsewhere_touch_nothing_there(run, tmp_path, name):
    copy, victim = shutil.copytree(run.path, tmp_path / "run"), tmp_path / "victim.txt"
    victim.write_text("mine")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"name": name}))
    with tiny.untrained():
        assert main([*TRAIN, f"--workdir={copy}"]) in (0, 2)
    assert victim.read_text() == "mine"


@pytest.mark.parametrize("name", ["checkpoints", "figures", "config.json", ".lock"])
@pytest.mark.parametrize("target", ["folder", "folder/1"])
def test_5_training_writes_and_removes_nothing_through_a_link(run, tmp_path, name, target):
    (tmp_path / "folder").mkdir()
    for victim in ("1", "loss.png", ".x.partial.png"):
        (tmp_path / "folder" / victim).write_text("mine")
    copy = shutil.copytree(run.path, tmp_path / "run")
    shutil.rmtree(copy / name, ignore_errors=True)
    (copy / name).unlink(missing_ok=True)
    (copy / name).symlink_to(tmp_path / target)
    with tiny.untrained():
        assert main([*TRAIN, f"--workdir={copy}"]) in (0, 2)
    assert [path.read_text() for path in (tmp_path / "folder").iterdir()] == ["mine"] * 3


def test_6_a_page_shows_names_as_text_and_loads_nothing(run, tmp_path):
    name = "<img src=x onerror=alert(1)>"
    copy = shutil.copytree(run.path, tmp_path / name)
    assert main(["report", str(copy), "-o", str(tmp_path / "r.html"), "--no-model"]) == 0
    page = (tmp_path / "r.html").read_text()
    assert name not in page
    assert "onerror=alert" in page
    assert "default-src 'none'" in page
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//", page)


def test_7_the_explorer_answers_its_own_pages_on_this_machine_alone():
    with open_explorer(0, "", [lambda request: {"is": "answered"}]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert server.server_address[0] == "127.0.0.1"

        def status(**headers):
            headers = {name.replace("_", "-"): value for name, value in headers.items()}
            asked = urllib.request.Request(f"{server.url}ask", b'{"run": 0}', headers)
            try:
                return urllib.request.urlopen(asked).status
            except urllib.error.HTTPError as error:
                return error.code

        token = {TOKEN: server.token}
        assert status(**token) == 200
        assert status() == 403
        assert status(**token, Host="evil.example") == 403
        server.shutdown()


def test_8_a_report_holds_the_parameters_unless_it_shall_not(run, tmp_path):
    pages = []
    for more in ([], ["--no-model"]):
        assert main(["report", str(run.path), "-o", str(tmp_path / "r.html"), *more]) == 0
        pages.append((tmp_path / "r.html").read_text())
    count = sum(leaf.size for leaf in jax.tree.leaves(run.params[0]))
    assert len(pages[0]) > len(pages[1]) + count


@pytest.mark.parametrize(
    "builder",
    [ag_news.AGNews, mnist.MNIST, multi30k.Multi30k, sst.SST, tinyshakespeare.Tinyshakespeare],
)
def test_9_downloads_have_sums(builder):
    """`tests/data/test_files.py` downloads files with right and wrong ones."""
    for name, info in zip(builder.FILES, builder.url_infos.values(), strict=True):
        assert re.fullmatch(r"[0-9a-f]{64}", info.checksum), name


def test_10_a_name_without_an_ending_is_a_config_of_the_package(tmp_path, monkeypatch):
    (tmp_path / "shapes_cnn.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    shutil.copy(tmp_path / "shapes_cnn.py", tmp_path / "shapes_cnn")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "shapes_cnn:quick", "--batch_size=many"]) == 2
    assert not (tmp_path / "ran").exists()
    assert main(["train", "shapes_cnn.py"]) == 2
    assert (tmp_path / "ran").exists()

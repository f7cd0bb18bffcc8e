"""Every setting refuses every bad value of its type, by flag and from Python."""

import json
import math
from pathlib import Path
from types import NoneType
from typing import Annotated, Literal, get_args, get_origin

import numpy as np
import pytest
from msgspec import UNSET

from flax_attn import config_files, schema
from flax_attn.__main__ import main
from flax_attn.data.sets import DATA
from flax_attn.data.sets.kinds import Preprocessing
from flax_attn.data.text import PREPROCESSING
from flax_attn.errors import LONGEST, UsageError
from flax_attn.experiment import config as configs
from flax_attn.experiment.config import Config, GeneralSettings, keys_of
from flax_attn.models import MODELS
from flax_attn.models.decoding import Decoding
from flax_attn.training.optimizer import Optimizer

SHAPES = {"name": "own", "data": {"name": "shapes"}, "model": {"name": "cnn"}}


def fields():
    """Every key once for each type that it has, with a config that has it."""
    found = {}
    for data, model in [*((name, "cnn") for name in DATA), *(("dates", name) for name in MODELS)]:
        flat = {"name": "own", "data.name": data, "model.name": model}
        for key, setting in keys_of(flat, DATA[data], MODELS[model]).items():
            if bad_texts(setting.hint) and key not in ("data.name", "model.name"):
                found.setdefault((key, str(setting.hint)), (schema.nested(flat), key, setting.hint))
    return list(found.values())


def bad_texts(hint):
    """Texts that no value of a type has: of another type, and just outside of its range."""
    metas = hint.__metadata__ if get_origin(hint) is Annotated else ()
    base = get_args(hint)[0] if metas else hint
    if get_origin(base) is Literal:
        return ["none", ""]
    if get_origin(base) is tuple:
        return [f"['{text}']" for text in bad_texts(get_args(base)[0])]
    if NoneType in get_args(base):
        return bad_texts(float)
    step = {int: 1, float: 1e38}.get(base, 0)
    texts = {bool: ["maybe", "2"], int: ["many", "1.5", ""], float: ["fast", "nan", ""]}
    bad = list(texts.get(base, [""] if metas else []))
    for meta in metas:
        bad += [str(meta.ge - step)] if meta.ge is not None else []
        bad += [str(meta.le + step)] if meta.le is not None else []
        bad += [str(limit) for limit in (meta.gt, meta.lt) if limit is not None]
        bad += ["a/b", "..", "x" * 256] if meta.pattern else []
    return [text for text in bad if hint is not float or text != "nan"]


@pytest.mark.parametrize(("values", "key", "hint"), fields(), ids=lambda part: str(part)[-40:])
def test_a_bad_value_is_one_line_that_names_the_key(
    values, key, hint, monkeypatch, tmp_path, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(config_files, "read", lambda name: values)
    for text in bad_texts(hint):
        assert main(["train", "own", f"--{key}={text}"]) == 2
        out, err = capsys.readouterr()
        assert (out, len(err.splitlines())) == ("", 1)
        assert key in err
        assert len(err) <= LONGEST + len("error: \n")
    assert list(tmp_path.iterdir()) == []
    flat = schema.flatten(values)
    for value in (None, [], "maybe", math.nan, object()):
        if get_origin(hint) is Annotated and get_args(hint)[0] in (int, float):
            with pytest.raises(UsageError, match=key):
                Config.of(schema.nested(flat | {key: value}))


def test_there_are_many_fields_and_each_is_told_in_help():
    assert len(fields()) > 100
    for cls in (GeneralSettings, Optimizer, Decoding, *DATA.values(), *MODELS.values()):
        for name, setting in schema.keys_of(cls).items():
            is_own = name not in ("parent", "name") or cls is GeneralSettings
            assert schema.described(setting.hint) or not is_own
    for cls in (GeneralSettings, Optimizer, Decoding, MODELS["gpt"], DATA["text_csv"]):
        helps = schema.help_of(cls)
        names = set(schema.keys_of(cls)) - {"parent", "name"}
        assert names <= set(helps), names - set(helps)


@pytest.mark.parametrize(
    ("flags", "values"),
    [
        (["--batch_size=8"], {"batch_size": 8}),
        (["--config.batch_size", "8"], {"batch_size": 8}),
        (["--batch_size=8", "--batch_size=9"], {"batch_size": 9}),
        (["--learning_rate=1e-2"], {"learning_rate": 0.01}),
        (["--optimizer.clip_norm=1"], {"optimizer.clip_norm": 1.0}),
        (["--data.fresh"], {"data.fresh": True}),
        (["--data.fresh=False"], {"data.fresh": False}),
        (["--nodata.fresh"], {"data.fresh": False}),
        (["--noconfig.keep_best"], {"keep_best": False}),
        (["--evaluate=valid,test"], {"evaluate": ("valid", "test")}),
        (["--evaluate=('test',)"], {"evaluate": ("test",)}),
        (["--model.binary_positions=true"], {"model.binary_positions": True}),
        (["--name=-a b=c"], {"name": "-a b=c"}),
    ],
)
def test_flags_have_the_types_of_their_keys(flags, values):
    """The config mentions none of these keys."""
    flat = schema.flatten(SHAPES)
    known = keys_of(flat, DATA["shapes"], MODELS["cnn"])
    parsed = schema.parse(known, flags)
    assert parsed == values
    assert list(map(type, parsed.values())) == list(map(type, values.values()))


@pytest.mark.parametrize(("text", "sizes"), [("1", (1,)), ("1,2", (1, 2)), ("[1, 2]", (1, 2))])
def test_a_list_may_be_one_element(text, sizes):
    assert schema.parse({"sizes": schema.Key(tuple[int, ...])}, [f"--sizes={text}"]) == {
        "sizes": sizes
    }


def test_scalars_of_numpy_and_paths_are_plain_values():
    values = SHAPES | {"batch_size": np.int64(3), "learning_rate": np.float32(0.5)}
    values["keep_best"] = np.bool_(True)
    config = Config.of(values | {"num_epochs": np.array(2)})
    assert (config.batch_size, config.learning_rate, config.num_epochs) == (3, 0.5, 2)
    json.dumps(config.values)
    data = {"name": "text_file", "file": Path("own.txt"), "valid_fraction": 0.1}
    assert Config.of(SHAPES | {"data": data, "model": {"name": "gpt"}}).data.file == "own.txt"


def test_a_stored_config_is_complete_and_read_as_it_was_written():
    values = Config.of(SHAPES).values
    stored = json.loads(json.dumps(values))
    assert Config.of(stored, complete=True).values == values
    for key in ("seed", "optimizer.eps", "data.num_train", "model.features"):
        less = {name: value for name, value in schema.flatten(stored).items() if name != key}
        with pytest.raises(UsageError, match=key):
            Config.of(schema.nested(less), complete=True)


def test_the_data_decide_some_fields_of_a_model():
    flat = {"name": "own", "data.name": "sst", "model.name": "ngram_attention"}
    known = keys_of(flat, DATA["sst"], MODELS["ngram_attention"])
    assert known["model.num_ngrams"].default is UNSET
    assert not {"model.num_ngrams", "model.num_classes"} & set(
        schema.flatten(schema.read(known, flat))
    )


def test_the_names_of_preprocessings_are_those_that_there_are():
    assert get_args(Preprocessing) == tuple(PREPROCESSING)


def test_a_shipped_config_has_all_values_and_a_strangers_name_runs_nothing(tmp_path, monkeypatch):
    values = configs.shipped_values("text_csv")
    assert (values["data.file"], values["data.max_length"], values["seed"]) == ("", 200, 0)
    (tmp_path / "evil.py").write_text("raise SystemExit('run')")
    monkeypatch.chdir(tmp_path)
    for name in ("evil", "evil.py", str(tmp_path / "evil"), "../configs/names", "names:none"):
        assert configs.shipped_values(name) is None

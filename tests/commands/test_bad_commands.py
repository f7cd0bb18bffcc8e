"""A bad command is told in one line with exit code 2, and leaves nothing on the disk."""

import gc
import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

import flax_attn
from configs import shapes_cnn, text_csv, translate_tsv
from flax_attn import config_files, experiment
from flax_attn.__main__ import main
from flax_attn.errors import LONGEST, UsageError
from flax_attn.runs import sums
from tests import tiny
from tests.ending import ending
from tests.written_runs import write_run

ROOT = Path(__file__).parents[2]
SMALL = ["--data.num_train=400", "--data.num_test=50", "--batch_size=32"]
HUGE = "999999999999999999999"
NO_TASK = "expected no config key 'task' (the kind of task follows from data.name), got "
RED, TURNED = "\x1b[31m", "\u202e"  # steer a terminal: what follows is red, or written backwards


def snapshot(folder):
    """The sizes and times of all files below a folder, and the folders."""
    return {
        path: None if path.is_dir() else (path.lstat().st_size, path.lstat().st_mtime_ns)
        for path in folder.rglob("*")
    }


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """A directory of its own, where runs and figures would go."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")


def complaint(capsys, *arguments):
    """The one line that a bad command prints."""
    before = snapshot(Path.cwd())
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    assert err.startswith("error: ")
    assert "Traceback" not in err
    assert len(err) <= len("error: \n") + LONGEST
    assert snapshot(Path.cwd()) == before
    return err


TRAINING = [  # arguments after `train shapes_cnn`, and what is said
    (["--model.feature=3"], "did you mean 'model.features'?"),
    (["--num_head=3"], "unknown flag or config key 'num_head'"),
    (["--config.num_head=3"], "unknown config key 'num_head'"),
    (["--confg=3"], "did you mean 'config'?"),
    (["--optimizer=adam"], "unknown flag or config key 'optimizer'; it has the keys optimizer.b1,"),
    (["—num_seeds=2"], "is a flag with two hyphens"),
    (["--lr=0.01"], "did you mean 'learning_rate'?"),
    (["--wd=0.01"], "did you mean 'optimizer.weight_decay'?"),
    (["--bs=8"], "did you mean 'batch_size'?"),
    (["--output-dir=here"], "unknown flag 'output-dir'; --workdir names the run directory"),
    (["--quick"], "unknown flag 'quick'; NAME:quick is the quick recipe of a config"),
    (["--resume"], "unknown flag 'resume'; a run resumes when it is trained again"),
    (["--gpu", "0"], "unknown flag 'gpu'; JAX takes the GPU or TPU that it finds"),
    (
        ["--zzz=8"],
        "expected one of config, workdir, manual_dir, explore, no-open, port, debug_nans",
    ),
    (["--zzz=8"], " more"),
    (["--nothing"], "unknown flag or config key 'nothing'"),
    (["--=1"], "unknown flag or config key '-'"),
    (["--"], "unknown flag or config key '-'"),
    (["-"], "unexpected argument '-'"),
    (["--config.=1"], "unknown flag or config key 'config.'"),
    (["--config=other"], "expected one --config, got 2"),
    (["--config"], "expected one argument"),
    (["--workdir"], "expected one argument"),
    (["--flagfile=/nope"], "unknown flag or config key 'flagfile'"),
    (["--logtostderr"], "unknown flag or config key 'logtostderr'"),
    (["leftover"], "unexpected argument 'leftover'"),
    (["--batch_size", "32", "leftover"], "unexpected argument 'leftover'"),
    (["---batch_size=3"], "unknown flag or config key '-batch_size'"),
    (["--batch_size"], "expected a value for --batch_size"),
    (["--keep_best", "false"], "unexpected argument 'false'"),
    (["--nokeep_best=True"], "--noKEY for a truth value, got --nokeep_best=True"),
    (["--noconfig.keep_best=True"], "--noKEY for a truth value"),
    (["--nobatch_size"], "--noKEY for a truth value"),
    (["--nobatch_size=3"], "--noKEY for a truth value"),
    (["--nokeep_best="], "--noKEY for a truth value"),
    (["--keep_best=maybe"], "expected bool for config key 'keep_best'"),
    (["--keep_best=2"], "expected bool for config key 'keep_best'"),
    (["--sequence=0"], "expected a --sequence from 1 to 1 (the devices), got 0"),
    (["--sequence=2"], "expected a --sequence from 1 to 1 (the devices), got 2"),
    (["--sequence=two"], "expected a whole number, got 'two'"),
    (["--batch_size=many"], "expected int for config key 'batch_size', such as 4, got 'many'"),
    (["--batch_size="], "expected int for config key 'batch_size'"),
    (["--batch_size=1e3"], "expected int for config key 'batch_size'"),
    (["--batch_size=3.0"], "expected int for config key 'batch_size'"),
    (["--batch_size=0x10"], "expected int for config key 'batch_size'"),
    (["--batch_size=" + "9" * 5_000], "expected int for config key 'batch_size'"),
    (["--batch_size=0"], "'batch_size' to be a number above 0"),
    (["--batch_size=-1"], "'batch_size' to be a number above 0"),
    (["--batch_size=30000"], "at most the 4000 training examples"),
    (["--batch_size=1000000000"], "at most 1,000,000 for config key 'batch_size'"),
    ([f"--batch_size={HUGE}"], "at most 1,000,000 for config key 'batch_size'"),
    (["--num_seeds=0"], "'num_seeds' to be a number above 0"),
    (["--num_seeds=1000000000"], "at most 10,000 for config key 'num_seeds', got 1,000,000,000"),
    ([f"--num_seeds={HUGE}"], "at most 10,000 for config key 'num_seeds'"),
    (["--num_seeds=" + "9" * 4_000], "got one of 13288 bits"),
    (["--num_epochs=0"], "'num_epochs' to be a number above 0"),
    (["--num_epochs=-5"], "'num_epochs' to be a number above 0"),
    ([f"--num_epochs={HUGE}"], "at most 1,000,000 for config key 'num_epochs'"),
    (["--steps_per_epoch=-1"], "'steps_per_epoch' to be a number 0 or above"),
    (["--steps_per_epoch=1000000000"], "at most 1,000,000 for config key 'steps_per_epoch'"),
    (["--patience=-1"], "'patience' to be a number 0 or above"),
    ([f"--patience={HUGE}"], "at most 2,147,483,647 for config key 'patience'"),
    (["--seed=-1"], "'seed' to be a number 0 or above"),
    (["--seed=4294967296"], "at most 4,294,967,295 for config key 'seed'"),
    (["--seed=4294967295", "--num_seeds=2"], "expected seeds below 2**32"),
    ([f"--data.seed={HUGE}"], "at most 4,294,967,295 for config key 'data.seed'"),
    (["--learning_rate=0"], "'learning_rate' to be a number above 0"),
    (["--learning_rate=-1e-3"], "'learning_rate' to be a number above 0"),
    (["--learning_rate=nan"], "expected a finite number for config key 'learning_rate'"),
    (["--learning_rate=1e999"], "expected a finite number for config key 'learning_rate'"),
    (["--learning_rate=1e300"], "at most 3.4e+38 for config key 'learning_rate', got 1e+300"),
    (["--optimizer.weight_decay=1e300"], "at most 3.4e+38 for config key 'optimizer.weight_decay'"),
    (
        ["--optimizer.clip_norm=1e-320"],
        "0 or at least 1.2e-38 for config key 'optimizer.clip_norm'",
    ),
    (["--optimizer.eps=1e-300"], "0 or at least 1.2e-38 for config key 'optimizer.eps'"),
    (["--learning_rate=fast"], "expected float for config key 'learning_rate'"),
    (["--label_smoothing=1"], "'label_smoothing' to be a number in [0, 1)"),
    (["--optimizer.b1=1"], "'optimizer.b1' to be a number in [0, 1)"),
    (["--optimizer.eps=0"], "'optimizer.eps' to be a number above 0"),
    (["--optimizer.eps=1e-400"], "'optimizer.eps' to be a number above 0"),
    (["--optimizer.clip_norm=-1"], "'optimizer.clip_norm' to be a number 0 or above"),
    (["--optimizer.warmup_steps=" + HUGE], "for config key 'optimizer.warmup_steps'"),
    (["--optimizer.schedule=linear"], "unknown optimizer.schedule 'linear'"),
    (
        ["--reference.last/test/mse=nan"],
        "expected a finite number for config key 'reference.last/test/mse'",
    ),
    (["--evaluate=test"], "expected tuple for config key 'evaluate'"),
    (["--evaluate=('test',"], "expected tuple for config key 'evaluate'"),
    (["--evaluate=()"], "to name splits of"),
    (["--evaluate=('test', 'valid', 'trial')"], "to name splits of"),
    (["--evaluate=('test', 'valid', 3)"], "to name splits of"),
    (["--evaluate=('test', " + "9" * 4_000 + ")"], "got one of 13288 bits"),
    (["--evaluate=([], {})"], "to name splits of"),
    (["--evaluate=" + "(" * 10_000], "expected tuple for config key 'evaluate'"),
    (["--evaluate=" + "-" * 100_000 + "1"], "expected tuple for config key 'evaluate'"),
    (["--evaluate={[]: 1}"], "expected tuple for config key 'evaluate'"),
    (["--evaluate=__import__('os').abort()"], "expected tuple for config key 'evaluate'"),
    (["--evaluate=('test',)"], "among them test and valid, which keep_best needs, got"),
    (
        ["--num_epochs=100_000"],
        "expected num_epochs below 100,000 for 1 seed, got 100,000; raise steps_per_epoch",
    ),
    (["--workdir=s3://bucket/run"], "a path on this machine, got the address s3://bucket/run;"),
    (["--MODEL.FEATURES=16"], "unknown flag or config key 'MODEL.FEATURES'; did you mean 'model."),
    (["--keep_best=False", "--patience=3"], "expected keep_best=True with patience"),
    (["--task=regression"], f"{NO_TASK}'regression'; remove it"),
    (["--config.task=regression"], f"{NO_TASK}'regression'; remove it"),
    (["--task"], NO_TASK),
    (["--name="], "expected config key 'name' to be a name"),
    (["--class_weights"], "class_weights=False for signals, which have no classes, got True"),
    (["--label_smoothing=0.1"], "label_smoothing=0.0 for signals, which have no classes, got 0.1"),
    (["--data.name=shape"], "did you mean 'shapes'?"),
    (["--data.name=no.module:Class"], "cannot import data.name"),
    (["--data.num_train=0"], "'data.num_train' to be a number above 0"),
    (["--data.num_train=1000000000"], "at most 1,000,000 for config key 'data.num_train'"),
    ([f"--data.num_test={HUGE}"], "at most 1,000,000 for config key 'data.num_test'"),
    (["--data.valid_fraction=1"], "'data.valid_fraction' to be a number in [0, 1)"),
    (["--data.valid_fraction=0"], "expected validation examples"),
    (["--data.num_train=9", "--data.valid_fraction=0.999"], "lower data.valid_fraction=0.999"),
    (["--data.subset=-1"], "'data.subset' to be a number 0 or above"),
    (["--data.subset=3", "--nodata.fresh"], "at most the 3 training examples"),
    (["--data.subset=30", "--data.fresh"], "expected data.subset=0 with data.fresh=True"),
    (["--data.task=by_color"], "data.task"),
    (["--data.height_rule=boxes and more"], "data.height_rule"),
    (["--data.fresh=maybe"], "expected bool for config key 'data.fresh'"),
    (["--model.name="], "unknown model.name ''"),
    (["--model.name=lstm"], "or take a config with model.name=lstm"),
    (["--data.name=mnist"], "'data.fresh' for data.name=mnist; expected one of data.seed, "),
    (["--model.name=transfomer"], "unknown model.name 'transfomer'"),
    (["--model.name=os:system"], "to be a subclass of flax.linen"),
    (["--model.name=:"], "cannot import model.name"),
    (["--model.features=0"], "'model.features' to be a number above 0"),
    (["--model.features=-64"], "'model.features' to be a number above 0"),
    ([f"--model.features={HUGE}"], "at most 2,147,483,647 for config key 'model.features'"),
    (["--model.num_layers=1000000"], "at most 1,000 for config key 'model.num_layers'"),
    (["--manual_dir"], "expected one argument"),
    ([f"--workdir={ROOT / 'train.py'}"], "is a file"),
    (["--workdir=/dev/null/run"], "Not a directory"),
    ([f"--workdir={'x' * 300}"], "File name too long"),
    (["--workdir=a\0b"], "without NUL characters"),
    (["--name=a\0b"], "without NUL characters"),
    ([f"--name={RED}", "--num_seeds=0"], "'num_seeds' to be a number above 0"),
    ([f"--data.task={RED}{TURNED}"], "\\x1b[31m\\u202e"),
    ([*SMALL, "--model.features=1000000000"], "whose training fits into"),
    (["--model.kernel_size=1000001"], "at most 1,000 for config key 'model.kernel_size'"),
    (
        [*SMALL, "--model.features=60000", "--num_seeds=10000", "--num_epochs=1"],
        "whose training fits into",
    ),
    (["--workdir=~nobody_x/run"], "a home that is known, got ~nobody_x/run; write the whole"),
    (["--manual_dir=~nobody_x"], "a path with a home that is known, got ~nobody_x"),
    (["--model.name=flax.linen:Module"], "a subclass of flax.linen.module.Module, got class Mod"),
    (["--model.name=flax.linen:Dense"], "unknown field of model 'flax.linen:Dense'"),
    (["--model.name=builtins:int"], "a subclass of flax.linen.module.Module, got class int"),
    (["--model.name=flax.linen:relu"], "got custom_jvp relu"),
    (["--data.name=builtins:int"], "a subclass of flax_attn.data.sets.kinds.DataSet, got class"),
    (["--data.name=flax_attn.data.sets:DataSet"], "got class DataSet"),
    (["--data.name=flax_attn.data.sets:SignalData"], "got the abstract class SignalData"),
    (["--name=."], "'name' to be a name for one folder below runs/"),
    (["--name=.."], "without / and \\), got '..'; rename it, or choose another folder"),
    (["--name=a/../../.."], "got 'a/../../..'"),
    (["--name=/tmp/run"], "got '/tmp/run'"),
    (["--name=a\\b"], "got 'a"),
    (["--name=" + "x" * 256], "1 to 255 bytes of UTF-8"),
    (["--name=" + "x" * 255 + "\u202e"], "1 to 255 bytes of UTF-8"),
    (["--name=a/b", "--workdir=run"], "got 'a/b'"),
    ([f"--workdir=new/{'x' * 300}"], "File name too long"),
    ([f"--workdir=new/../{'x' * 300}/run"], "File name too long"),
    (["--workdir=new/../run", "--num_seeds=0"], "'num_seeds' to be a number above 0"),
    (
        ["x" * 100_000],
        "xxx'; everything but the config is a flag with two hyphens, --KEY",
    ),
    (["--" + "x" * 100_000], "xxx'; expected one of config, workdir,"),
    (["--batch_size=" + "x" * 100_000], "expected int for config key 'batch_size'"),
    (["--nobatch_size=" + "x" * 100_000], "or --noKEY for a truth value, got --nobatch_size=x"),
    (["--config=" + "x" * 100_000], "expected one --config, got 2"),
    (["--sequence=" + "x" * 100_000], "see flax-attn train --help"),
    (["--debug_nans=yes"], "--debug_nans: expected no value, got 'yes'; see flax-attn train"),
    (["--workdir="], "--workdir: expected a path, got an empty text (is a variable empty?)"),
    (["--manual_dir="], "--manual_dir: expected a path, got an empty text"),
    (["--task=" + "x" * 100_000], "xxx'; remove it"),
    (["--model.name=" + "x" * 100_000], "; expected one of cnn, "),
    (["--data.name=no:" + "x" * 100_000], "cannot import data.name 'no:x"),
]


@pytest.mark.parametrize(("arguments", "said"), TRAINING)
def test_a_bad_command_to_train_is_one_line(arguments, said, capsys):
    assert said in complaint(capsys, "train", "shapes_cnn", *arguments)


OTHERS = [  # whole commands
    (["predict", "run", "--input=a.png", "--input=b.png"], "expected --input once, got it twice"),
    ([], "the following arguments are required: command"),
    (["divine"], "invalid choice: 'divine'"),
    (["--batch_size=3"], "see flax-attn --help"),
    (["--verison"], "unrecognized arguments: --verison"),
    (["train"], "expected a config, such as flax-attn train shapes_attention"),
    (["train", "--confg=shapes_cnn"], "train shapes_attention, got --confg=shapes_cnn"),
    (["train", "shapes_cn"], "no config file shapes_cn; did you mean 'shapes_cnn'?"),
    (["train", "shapes_attn"], "no config file shapes_attn; did you mean 'shapes_attention'?"),
    (["train", "nothing"], "no config file nothing; flax-attn train --help lists the configs"),
    (["train", ":quick"], "no config file :quick"),
    (["train", "https://example.com/a.py"], "no config file https://example.com/a.py"),
    (["train", "/"], "no config file / (a directory)"),
    (["train", "/dev/zero"], "no config file /dev/zero (no regular file)"),
    (["train", "--config="], "no config file"),
    (
        ["train", "shapes_cnn:fast"],
        "expected shapes_cnn, shapes_cnn:quick or shapes_cnn:tutorial, got 'shapes_cnn:fast'",
    ),
    (["train", "names", "--port=8700"], "expected --port beside --explore alone"),
    (["train", "names", "--no-open"], "expected --no-open beside --explore alone"),
    (["train", "names", "--timeout=50"], "expected --timeout beside --distributed alone"),
    (
        ["train", "shapes_cnn", *SMALL, "--manual_dir=nowhere"],
        "expected a folder as manual_dir, got nowhere; leave it out",
    ),
    (
        ["train", "shapes_by_location", "--data.height_rule=both"],
        "expected data.task=by_shape with data.height_rule=both, which decides nothing here",
    ),
    (
        ["train", "names", "--optimizer.plateau_factor=0.5"],
        "plateau_patience above 0 with optimizer.plateau_factor=0.5, which decides nothing here; "
        "leave optimizer.plateau_factor out",
    ),
    (
        ["train", "text_csv", "--data.file=a", "--data.test_file=b", "--data.test_fraction=0.3"],
        "expected data.test_file='' with data.test_fraction=0.3",
    ),
    (
        ["train", "numbers_csv", "--data.file=a", "--data.test_file=b", "--data.test_fraction=0"],
        "expected data.test_file='' with data.test_fraction=0.0",
    ),
    (["train", "sst_best", "--data.tokenizer=letters"], "unknown data.tokenizer 'letters'"),
    (["train", "sst_best", "--data.vocabulary_size=2"], "data.vocabulary_size of 3 or above"),
    (
        ["train", "ag_news_joined", "--data.test_fraction=0.3"],
        "expected data.file=test.csv with data.test_fraction=0.3",
    ),
    (["report", "w.npz", "--no-model"], "expected --no-model beside runs alone, got a file of w"),
    (["train", "names", "--explore", "--port=x"], "argument --port: expected 0 to 65535, got 'x'"),
    (["train", "names:fast"], "expected names or names:quick, got 'names:fast'"),
    (["train", "/dev/zero"], "no config file /dev/zero"),
    (["train", "/dev/null:quick"], "no config file /dev/null"),
    (["train", "."], "no config file ."),
    (["train", "~nobody_x"], "a path with a home that is known, got ~nobody_x"),
    (
        ["train", "text_csv", "--data.file=https://a.org/b.csv"],
        "got the address https://a.org/b.csv;",
    ),
    (["train", "text_file", "--data.file=~nobody_x/a.txt"], "a home that is known, got ~nobody_x/"),
    (["train", "signals_npz", "--data.file=~nobody_x.npz"], "a home that is known, got ~nobody_x."),
    (["train", "images_folder", "--data.file=~nobody_x"], "a home that is known, got ~nobody_x;"),
    (["train", "text_csv", "--data.file=~nobody_x"], "a home that is known, got ~nobody_x;"),
    (["train", "translate_tsv", "--data.file=~nobody_x"], "a home that is known, got ~nobody_x;"),
    (["x" * 100_000], "see flax-attn --help"),
    (["--" + "x" * 100_000], "see flax-attn --help"),
    (["train", "x" * 100_000], "(File name too long)"),
    (["train", "x/" * 1_000], "no config file x/x/"),
    (["train", "shapes_cnn:" + "x" * 100_000], "expected shapes_cnn, shapes_cnn:quick or"),
    (["train", "images_folder", "--data.path=x"], "'data.path'; did you mean 'data.file'?"),
    (["train", "images_folder", "--data.csv=x"], "'data.csv'; did you mean 'data.file'?"),
    (["train", "names", "--data.batch_size=8"], "did you mean 'batch_size'?"),
    (["train", "names", "--optimizer.lr=8"], "'optimizer.lr'; expected one of optimizer.b1, "),
    (["predict", "x", "--" + "y" * 100_000], "yyy; see flax-attn predict --help"),
    (["predict", "", "a text"], "argument RUN: expected a path, got an empty text"),
    (["report", "dates", "-o", ""], "argument -o/--output: expected a path, got an empty text"),
    (["export", "dates", ""], "argument FOLDER: expected a path, got an empty text"),
    (["explore", "x", "--port=x"], "got 'x'; see flax-attn explore --help"),
    (["compare", *(f"run{i}" for i in range(9_999)), "--x"], "unrecognized arguments: --x"),
    (["train", "shapes_cnn", "shapes_lstm"], "unexpected argument 'shapes_lstm'"),
    (["train", "shapes_cnn", "--workdir=\udcff"], "expected arguments in UTF-8"),
    (["train", "shapes_cnn", "--name=\udcff"], "arguments in UTF-8"),
    (["predict", "run\udcff"], "the path of a run in UTF-8, got"),
    (["train", "base"], "base.py, got none"),
    (["predict", "x", "--allow", "../evil"], "expected a module such as my_models, got '../evil'"),
    (["generate", "x", "--allow", ""], "expected a module such as my_models, got ''"),
    (
        ["train", "names", "--model.features=12", "--model.num_heads=4"],
        "an even width of each head with positions='rotary', got features=12 and num_heads=4",
    ),
    *(
        (["train", config, "--class_weights"], f"for {of}, which have no classes, got True")
        for config, of in (("numbers_words", "numbers"), ("series_input_attention", "series"))
    ),
    (
        ["train", "text_csv", "--data.file=/none.csv", "--data.valid_fraction=0"],
        "above 0, and only there, got 0.0 with valid, test; change one",
    ),
    (
        ["train", "text_csv_best", "--data.file=/none.csv", "--data.num_pairs=-1"],
        "'data.num_pairs' to be a number 0 or above, got -1",
    ),
    (["train", "text_csv"], "expected --data.file=FILE.csv"),
    (["train", "text_csv", "--data.train_file=a.csv"], "did you mean 'data.file'?"),
    (["train", "numbers_csv", "--data.train_file=a.csv"], "did you mean 'data.file'?"),
    (["train", "text_csv", "--data.file=/none.csv"], "/none.csv"),
    (["train", "text_csv", "--data.file=/dev/zero"], "a device"),
    (["train", "text_csv", "--data.file=/"], "Is a directory"),
    (["train", "text_csv", "--data.file=" + "x" * 300], "File name too long"),
    (["train", "translate_tsv"], "expected --data.file=FILE.tsv"),
    (["train", "translate_tsv", "--data.file=/dev/zero"], "/dev/zero"),
    (
        ["train", "translate_tsv", "--data.file=p", "--data.source_column=2"],
        "two different",
    ),
    (["train", "translate_tsv", "--data.source_column=0"], "expected two different columns from 1"),
    (
        ["train", "translate_multi30k_transformer", "--model.attention_dropout_rate=1"],
        "'model.attention_dropout_rate' to be a number in [0, 1), got 1",
    ),
    (["train", "reverse_bahdanau", "--decoding.beam=0"], "'decoding.beam' to be a number above 0"),
    (["train", "reverse_bahdanau", "--decoding.beam=100000000"], "at most 1,000 for config key"),
    (["train", "reverse_bahdanau", "--data.max_letters=2000000000"], "numbers to draw"),
    (["train", "series_input_attention", "--data.length=1000000000"], "numbers to draw"),
    (["train", "series_input_attention", "--data.relevant=8"], "data.relevant"),
    (["train", "names", "--data.num_lines=2000000000"], "at most 1,000,000 for config key"),
    (
        ["train", "images_folder", "--data.file=x", "--data.height=60000", "--data.width=60000"],
        "data.height times data.width of at most 67,108,864, got 60000 and 60000",
    ),
    (["train", "text_file", "--data.file=gone.txt"], "give a text file by --data.file"),
    (["train", "text_file", "--data.file=."], "(Is a directory); give a text file by --data."),
    (["train", "mnist_mlp", "--manual_dir=/none"], "no file /none/mnist/"),
    (["train", "mnist_mlp", "--manual_dir=/none", "--data.num_train=-1"], "0 or above"),
    (["predict"], "the following arguments are required: RUN"),
    (["predict", "/none"], "no run directory /none"),
    (["predict", "https://a.org/run"], "a path on this machine, got the address https://a.org/run"),
    (["predict", "/dev/null"], "cannot be read (Not a directory)"),
    (["predict", "."], "has no config.json"),
    (["predict", "a\0b"], "without NUL characters"),
    (["predict", "x", "--beam", "five"], "expected a whole number, got 'five'"),
    (["predict", "x", "--best", "1.5"], "expected a whole number, got '1.5'"),
    (["predict", "x", "--beam"], "expected one argument"),
    (["predict", "x", "text", "--unknown"], "unrecognized arguments: --unknown"),
    (["predict", "x" * 300], "File name too long"),
    (["compare"], "the following arguments are required: RUN"),
    (["compare", "/none"], "no run directory /none"),
    (["compare", "."], "has no config.json"),
    (["compare", "x", "--outputs=3", "--what"], "unrecognized arguments"),
    (["compare", "a\0b"], "without NUL characters"),
]


@pytest.mark.parametrize(("arguments", "said"), OTHERS)
def test_a_bad_command_is_one_line(arguments, said, capsys):
    assert said in complaint(capsys, *arguments)


def test_a_port_in_use_is_told_before_anything_is_written(capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        arguments = ["train", "shapes_cnn", *SMALL, "--explore", "--no-open", f"--port={port}"]
        assert f"expected a free --port, got {port}" in complaint(capsys, *arguments)


CONFIGS = {  # files of the user's own
    "raise ImportError('first\\nsecond')": "got ImportError: first second",
    "def get_config(variant) return": "got SyntaxError",
    "import sys\nsys.exit(0)": "got SystemExit: 0",
    "def get_config(variant): exit()": "got SystemExit",
    "def get_config(variant): return {}": "to return a ConfigDict, got dict",
    "def get_config(variant): return None": "to return a ConfigDict, got NoneType",
    "async def get_config(variant): return 3": "to return a ConfigDict, got coroutine",
    "def get_config(variant): yield 3": "to return a ConfigDict, got generator",
    "class Own:\n  def to_dict(self): return {'name': 'x'}\n"
    "get_config = lambda variant: Own()": "to return a ConfigDict, got Own",
    "from ml_collections import ConfigDict\nclass Own(ConfigDict):\n"
    "  def to_dict(self): return 3\nget_config = lambda variant: Own()": "got Own",
    "from ml_collections import ConfigDict\nclass Own(ConfigDict):\n"
    "  def to_dict(self): return {'a': self}\nget_config = lambda variant: Own()": "got TypeError",
    "class Own(Exception):\n  def __str__(self): raise KeyError('no')\nraise Own": "got Own: Own",
    "class Own(ValueError):\n  def __str__(self): raise SystemExit\n"
    "def get_config(variant): raise Own": "got Own: Own",
    "raise BaseException('base')": "got BaseException: base",
    "def get_config(variant): raise GeneratorExit": "got GeneratorExit",
    "raise ValueError('x' * 10**7 + ' at the end')": "x at the end",
    "raise KeyError('x' * 10**7)": "got KeyError: 'x",
    "raise type('X' * 10**5, (Exception,), {})('at the end')": "at the end",
    "def get_config(): pass": "got TypeError",
    "get_config = 3": "got TypeError",
    "": "expected a function get_config(variant) in",
    "def get_config(variant): return {}['get_config']": "got KeyError: 'get_config'",
    "def get_config(variant): return int('x')": "to return a ConfigDict, got ValueError: invalid",
    "def get_config(variant): raise ValueError('first\\nsecond')": "got ValueError: first second",
    "def get_config(variant): return get_config(variant)": "got RecursionError",
    "def get_config(variant): raise MemoryError": "got MemoryError",
    "def get_config(variant): raise RuntimeError('\\x1b[31m')": "got RuntimeError: \\x1b[31m",
    "a = '\0'": "null bytes",
    "#" * 2_000_000: "a config file of at most 1,048,576 bytes",
    "c.name = '\\ud800'": "expected config key 'name' to be a name",
    "c.name = 'a\\0b'": "expected config key 'name' to be a name",
    "c.name = 'a/b'": "expected config key 'name' to be a name",
    "c.reference = {'last/test/mse': 'x'}": "a number for config key 'reference.last/test/mse'",
    "c.reference = {'last/test/mse': True}": "a number for config key 'reference.last/test/mse'",
    "c.reference = {'last': {'mse': (1, 2)}}": "a number for config key 'reference.last.mse', got",
    "c.task = 'regression'": f"{NO_TASK}'regression'; remove it",
    "c.task = 'x' * 10**6": NO_TASK,
    "c.name = 3": "expected str for config key 'name'",
    "c.data = 3": "expected a part 'data' of the config",
    "del c.data.name": "unknown data.name 'None'",
    "del c.model": "expected a part 'model' of the config",
    "c.model.name = 3": "expected str for config key 'model.name'",
    "c.model.dropout_rate = 'high'": "'model.dropout_rate' to be a number in [0, 1)",
    "c.model.features = float('nan')": "expected a finite number for config key 'model.features'",
    "c.model.features = '64'": "config part 'model' does not make a model",
    "c.model.features = 10**5000": "got one of 16610 bits",
    "c.reference = 3": "expected a part 'reference' of the config",
    "c.x = {1: 2}": "expected config keys that are texts, got 1",
    "c.model = {'name': 'flax.linen:Dense'}": "missing 1 required positional argument: 'features'",
    "c.model = {'name': 'flax.linen:Dense', 'features': 1}": "unexpected keyword argument 'train'",
    "c.model = {'name': 'flax.linen:Conv', 'features': 1}": "does not make a model: Conv.__init__",
    "c.model = {'name': 'flax.linen:BatchNorm'}": "does not make a model",
    "c.decoding = 3": "expected a part 'decoding' of the config",
    "c.seed = True": "expected int for config key 'seed'",
    "c.extra = print": "expected a plain value for config key 'extra'",
    "c.extra = 3": "unknown config key 'extra'",
    "c.evaluate = 'test'": "expected tuple for config key 'evaluate'",
    "del c.batch_size": "expected int for config key 'batch_size', got None",
}


@pytest.mark.parametrize(("text", "said"), CONFIGS.items(), ids=list(CONFIGS.values()))
def test_a_bad_config_file_is_one_line(text, said, tmp_path, capsys):
    if text.startswith(("c.", "del c.")):
        text = (
            "from configs import shapes_cnn\ndef get_config(variant):\n"
            f"  c = shapes_cnn.get_config()\n  c.data.num_train, c.batch_size = 400, 32\n"
            f"  with c.ignore_type():\n    {text}\n"
            "  return c\n"
        )
    (tmp_path / "mine.py").write_text(text)
    assert said in complaint(capsys, "train", tmp_path / "mine.py")


def test_a_config_file_that_warns_has_one_line(tmp_path, capsys, recwarn):
    text = "import warnings\nx = '\\d'\nwarnings.warn('first')\n"
    for end, said in (
        ("raise ValueError('second')", "got ValueError: second"),
        ("async def get_config(variant): pass", "got coroutine"),
    ):
        (tmp_path / "mine.py").write_text(text + end)
        assert said in complaint(capsys, "train", tmp_path / "mine.py")
    gc.collect()  # a coroutine that nothing awaits warns when it is collected
    assert not recwarn.list


def test_ctrl_c_while_a_config_file_is_read_is_one_line(tmp_path, capsys):
    (tmp_path / "mine.py").write_text("raise KeyboardInterrupt")
    assert main(["train", str(tmp_path / "mine.py")]) == 130
    assert capsys.readouterr() == ("", "stopped\n")


def test_a_config_that_cannot_be_changed_is_read_as_one_that_can(tmp_path, capsys):
    text = "from configs import shapes_cnn\nfrom ml_collections import FrozenConfigDict\n"
    text += "def get_config(variant): return FrozenConfigDict(shapes_cnn.get_config())\n"
    (tmp_path / "mine.py").write_text(text)
    said = complaint(capsys, "train", tmp_path / "mine.py", "--num_seeds=0")
    assert "'num_seeds' to be a number above 0" in said


def test_a_config_that_changes_the_directory_does_so_for_itself(tmp_path, capsys):
    text = "import os\nfrom configs import shapes_cnn\nos.chdir('..')\n"
    (tmp_path / "mine.py").write_text(text + "get_config = shapes_cnn.get_config\n")
    here = Path.cwd()
    assert "'num_seeds'" in complaint(capsys, "train", tmp_path / "mine.py", "--num_seeds=0")
    assert Path.cwd() == here


@pytest.mark.parametrize(
    "words", ["train names", "predict r", "report r", "compare r", "train a.py"]
)
def test_a_current_directory_that_is_gone_is_told(words, tmp_path, monkeypatch, capsys):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert main(words.split()) == 2
    assert "current directory that exists, but it has been removed" in capsys.readouterr().err
    with pytest.raises(UsageError, match="current directory that exists"):
        config_files.read("shapes_cnn")


def test_a_file_is_taken_for_a_config_where_its_name_ends_in_py(capsys):
    """Others may have written what the current directory holds."""
    Path("shapes_cnn").write_text("open('TAKEN', 'w')")
    Path("other").write_text("open('TAKEN', 'w')")
    Path("configs").mkdir()
    Path("configs/shapes_cnn").write_text("open('TAKEN', 'w')")
    for name in ("shapes_cnn", "./shapes_cnn", "configs/shapes_cnn", "configs/shapes_cnn.py"):
        assert "'num_seeds'" in complaint(capsys, "train", name, "--num_seeds=0")
        assert "shapes_cnn:quick" in complaint(capsys, "train", f"{name}:fast")
    said = complaint(capsys, "train", "other")
    assert "expected a config file in Python with a function get_config, NAME.py, got other" in said
    assert "a config file in Python" in complaint(capsys, "train", Path("shapes_cnn").absolute())
    Path("configs/shapes_cnn.py").write_text("raise ValueError('mine')")
    said = complaint(capsys, "train", "configs/shapes_cnn.py")
    assert said.endswith("in configs/shapes_cnn.py to return a ConfigDict, got ValueError: mine\n")
    Path("shapes_cnn.py").write_text("raise ValueError('another')")
    said = complaint(capsys, "train", "shapes_cnn.py")
    assert said.endswith("in shapes_cnn.py to return a ConfigDict, got ValueError: another\n")
    assert "'num_seeds'" in complaint(capsys, "train", "shapes_cnn", "--num_seeds=0")


def test_a_directory_of_something_else_is_not_touched(tmp_path, capsys):
    Path("other").mkdir()
    Path("other/notes.txt").write_text("notes")
    before = Path("other").stat().st_mtime_ns
    said = complaint(capsys, "train", "shapes_cnn", "--workdir=other")
    assert (
        "but other has no config.json, as a published model has, too; nothing was touched" in said
    )
    assert Path("other").stat().st_mtime_ns == before
    said = complaint(capsys, "train", "shapes_cnn", "--workdir=new/../other")
    where = Path("other").absolute()
    assert (
        f"but {where} has no config.json, as a published model has, too; nothing was touched"
        in said
    )
    assert Path("other").stat().st_mtime_ns == before
    Path("other/config.json").write_text("{}")
    before = Path("other").stat().st_mtime_ns
    said = complaint(capsys, "train", "shapes_cnn", "--workdir=other")
    assert "the config of a run in" in said
    assert "model_type" in said
    assert Path("other").stat().st_mtime_ns == before


def test_a_link_to_itself_is_one_line(capsys):
    for name in ("loop", "loop.py", "loop.npz", "loop.txt"):
        Path(name).symlink_to(name)
    for said, arguments in (
        ("cannot write to run directory loop", ["shapes_cnn", "--workdir=loop"]),
        ("symbolic links", ["shapes_cnn", "--workdir=loop/run"]),
        ("no file loop/mnist/", ["mnist_mlp", "--manual_dir=loop"]),
        ("no config file loop.py", ["loop.py"]),
        ("symbolic links", ["signals_npz", "--data.file=loop.npz"]),
        ("symbolic links", ["images_folder", "--data.file=loop"]),
        ("symbolic links", ["text_file", "--data.file=loop.txt"]),
    ):
        assert said in complaint(capsys, "train", *arguments)
    for command in ("predict", "compare", "report", "generate", "explore"):
        assert "symbolic links" in complaint(capsys, command, "loop")
        assert "symbolic links" in complaint(capsys, command, "loop/run")


def test_a_module_of_ones_own_that_ends_the_program_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    for key in ("model.name", "data.name"):
        said = complaint(capsys, "train", "shapes_cnn", f"--{key}=leaving:Class")
        assert f"cannot import {key} 'leaving:Class' (SystemExit: 0)" in said


@pytest.mark.parametrize("said", ["model.feature", "num_seeds=10000000", "batch_size=many"])
def test_names_types_and_sizes_are_checked_before_jax_is_imported(said):
    code = "import sys; from flax_attn.__main__ import main; main(); print('jax' in sys.modules)"
    command = [sys.executable, "-c", code, "train", "shapes_cnn", f"--{said}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert (done.stdout, len(done.stderr.splitlines())) == ("False\n", 1), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["train.py", "--config=configs/shapes_cnn.py", "--config.num_seeds=1000000000"],
        ["train.py", "--config=configs/shapes_cnn.py", *SMALL, "--model.features=1000000000"],
        ["-m", "flax_attn", "train", "shapes_cnn", f"--model.features={HUGE}"],
        ["-m", "flax_attn", "train", "shapes_cnn", "--noconfig.keep_best=True"],
        ["-m", "flax_attn", "predict", "/dev/null", "--beam", HUGE],
        ["-m", "flax_attn", "compare", "/none"],
    ],
)
def test_a_bad_command_is_one_line_in_a_process_of_its_own(arguments, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    arguments = [str(ROOT / arguments[0]), *arguments[1:]] if len(arguments[0]) > 2 else arguments
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    assert done.stderr.startswith("error: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]


def test_too_little_memory_is_told_before_jax_aborts():
    command = f"ulimit -v 1500000; exec {sys.executable} -m flax_attn train shapes_cnn"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "expected at least 2.0 GB of memory for JAX, got a limit of 1.5 GB" in done.stderr


@pytest.mark.parametrize(
    ("setting", "arguments", "said"),
    [
        ("JAX_ENABLE_X64=perhaps", ["train", "shapes_cnn"], "take in JAX_ENABLE_X64=perhaps ("),
        ("FLAX_PROFILE=x", ["train", "shapes_cnn"], "that JAX and Flax take in FLAX_PROFILE=x ("),
        ("JAX_NUM_CPU_DEVICES=0", ["train", "shapes_cnn"], "devices of JAX_NUM_CPU_DEVICES=0 ("),
        ("JAX_ENABLE_X64=1", ["train", "shapes_cnn"], "another JAX_ENABLE_X64 than True, which"),
        (
            "JAX_NUMPY_DTYPE_PROMOTION=strict",
            ["train", "shapes_cnn"],
            "another JAX_NUMPY_DTYPE_PROMOTION than strict, which no run works with; leave the",
        ),
        (
            "JAX_TRANSFER_GUARD=disallow",
            ["train", "shapes_cnn"],
            "another JAX_TRANSFER_GUARD than disallow, which",
        ),
        ("XLA_FLAGS=--xla_no_such_flag=1", ["train", "shapes_cnn"], "Unknown flag"),
        ("JAX_ENABLE_X64=perhaps", ["predict", "run", "--input", "x.npy"], "JAX_ENABLE_X64=per"),
    ],
    ids=str,
)
def test_a_setting_that_jax_does_not_take_is_told_and_leaves_nothing(
    setting, arguments, said, tmp_path
):
    """XLA itself ends the process for flags that it does not know."""
    write_run(tmp_path / "run")
    before = snapshot(tmp_path)
    name, _, value = setting.partition("=")
    done = subprocess.run(
        [sys.executable, "-m", "flax_attn", *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), name: value},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert said in done.stderr
    assert snapshot(tmp_path) == before
    if name != "XLA_FLAGS":
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)


# --- predictions ---------------------------------------------------------------------------------


def trained(config, workdir, overrides):
    """A run of one epoch, with the parameters that it began with."""
    config.update_from_flattened_dict(overrides | {"num_epochs": 1})
    with tiny.untrained():
        experiment.run(experiment.Config.of(config), workdir)
    return workdir


@pytest.fixture(scope="module")
def signals(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "signals"
    return trained(shapes_cnn.get_config("quick"), workdir, tiny.CNN | tiny.SHAPES)


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A run on texts and labels that hold what steers a terminal."""
    folder = tmp_path_factory.mktemp("runs")
    rows = [
        (f"a good {RED}film number {i}", f"yes{TURNED}") if i % 2 else (f"bad {i}", f"no{RED}")
        for i in range(60)
    ]
    lines = "".join(f'"{text}","{label}"\n' for text, label in rows)
    (folder / "own.csv").write_text("text,label\n" + lines, encoding="utf-8")
    config = text_csv.get_config("quick")
    config.data.file, config.data.preprocessing = str(folder / "own.csv"), "lower"
    config.data.max_length = 200
    return trained(config, folder / "texts", tiny.TEXTS)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A run on pairs whose targets hold what steers a terminal."""
    folder = tmp_path_factory.mktemp("runs")
    lines = "".join(f"wort {'ein ' * (i % 5)}{i}\t{RED}word {i}{TURNED}\n" for i in range(60))
    (folder / "own.tsv").write_text(lines, encoding="utf-8")
    config = translate_tsv.get_config("quick")
    config.data.file, config.data.tokenizer = str(folder / "own.tsv"), "word"
    return trained(config, folder / "pairs", tiny.PAIRS | {"decoding.beam": 2})


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    chance = np.random.default_rng(0)
    data = {
        split: (chance.integers(0, 256, (32, 28, 28), np.uint8), ["one", f"two{RED}"] * 16)
        for split in ("train", "test")
    }
    overrides = {"num_epochs": 1, "batch_size": 16, "data.valid_fraction": 0.0}
    overrides |= {"model.hidden_features": 8}
    workdir = tmp_path_factory.mktemp("runs") / "digits"
    with tiny.untrained():
        run = flax_attn.train("mnist_mlp:quick", data=data, workdir=workdir, overrides=overrides)
    return run.path


def chunk(kind, content):
    sum_ = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + sum_


@pytest.fixture
def inputs(tmp_path, monkeypatch):
    """Good and bad files, in the directory that commands are run in."""
    folder = tmp_path / "here"
    np.save(folder / "good.npy", np.zeros((1, 100)))
    np.save(folder / "objects.npy", np.array([{"a": 1}, None]), allow_pickle=True)
    np.savez(folder / "archive.npz", np.zeros(100))
    (folder / "archive.npz").rename(folder / "archive.npy")
    (folder / "folder.npy").mkdir()
    os.mkfifo(folder / "pipe.npy")
    for suffix in ("csv", "txt", "png", "idx"):
        (folder / f"zero.{suffix}").symlink_to("/dev/zero")
        (folder / f"pipe.{suffix}").symlink_to("pipe.npy")
    for name, shape in {
        "huge": "(99999999999999999999, 100)",
        "large": "(1000000000000, 100)",
        "truth": "(True, 100)",
        "open": "(" * 200,
        "nested": "[" * 3_000 + "]" * 3_000,
    }.items():
        head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
        start = b"\x93NUMPY\1\0" + struct.pack("<H", len(head))
        (folder / f"{name}.npy").write_bytes(start + head + bytes(800))
    (folder / "nothing.csv").touch()
    (folder / "words.csv").write_text(f"1,2,{RED}three\n")
    (folder / "uneven.csv").write_text("1,2\n1\n")
    (folder / "quoted.csv").write_text('"1","2"\n')
    (folder / "latin.txt").write_bytes(b"fine\ncaf\xe9\n")
    (folder / "binary.txt").write_bytes(bytes(range(256)))
    (folder / "empty.txt").write_text("\n \n")
    (folder / "long.txt").write_bytes(b"x" * 10_000_001)
    (folder / "good.txt").write_text("a good film\nbad 2\n")
    (folder / "unknown.txt").write_text("zzz yyy\n")
    (folder / "script.png").write_text("%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 28 28\n")
    for suffix in ("npy", "csv", "png", "txt"):
        (folder / f"loop.{suffix}").symlink_to(f"loop.{suffix}")
    (folder / "link.npy").symlink_to("good.npy")
    for name, width, height in (("large.png", 13_000, 13_000), ("long.png", 65_536, 1)):
        header = chunk(b"IHDR", struct.pack(">2I5B", width, height, 1, 0, 0, 0, 0))
        (folder / name).write_bytes(
            b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", b"") + chunk(b"IEND", b"")
        )
    (folder / "cut.idx").write_bytes(bytes([0, 0, 8, 3]) + struct.pack(">3I", 10**6, 28, 28))
    return folder


PREDICTIONS = [  # the run, the arguments behind it, and what is said
    ("signals", [], "expected --input FILE with signals of 100 points"),
    ("signals", ["a text"], "neither a text nor --json"),
    ("signals", ["--input", "good.npy", "--json"], "neither a text nor --json"),
    ("signals", ["--input", "good.npy", "--beam", "3"], "for a run on translation alone"),
    ("signals", ["--input", "good.npy", "--best", "3"], "for a run on translation alone"),
    ("signals", ["--input", ""], "argument --input: expected a path, got an empty text"),
    ("signals", ["--input", "none.npy"], "No such file"),
    ("signals", ["--input", "x" * 300 + ".npy"], "File name too long"),
    ("signals", ["--input", "a\0.npy"], "without NUL characters"),
    ("signals", ["--input", f"{RED}{TURNED}.npy"], "\\x1b[31m\\u202e.npy"),
    ("signals", ["--input", "folder.npy"], "Is a directory"),
    ("signals", ["--input", "zero.csv"], "zero.csv"),
    ("signals", ["--input", "objects.npy"], "got object of shape"),
    ("signals", ["--input", "archive.npy"], "got an archive of several"),
    ("signals", ["--input", "huge.npy"], "is cut off"),
    ("signals", ["--input", "large.npy"], "is cut off"),
    ("signals", ["--input", "truth.npy"], "got float64 of shape (True, 100)"),
    ("signals", ["--input", "open.npy"], "write it with numpy.save"),
    ("signals", ["--input", "nested.npy"], "write it with numpy.save"),
    (
        "signals",
        ["--input", "words.csv"],
        "could not convert string '\\x1b[31mthree' to float64 in row 1, column 3",
    ),
    ("signals", ["--input", "nothing.csv"], "expected numbers in nothing.csv, got an empty file"),
    ("signals", ["--input", "uneven.csv"], "number of columns changed from 2 to 1"),
    ("signals", ["--input", "quoted.csv"], "expected numbers in quoted.csv"),
    ("signals", ["--input", "good.npy", "--figure", "x"], "--figure to end in .png, .pdf or .svg"),
    ("signals", ["--input", "good.npy", "--figure", "a\0.png"], "without NUL characters"),
    ("signals", ["--input", "good.npy", "--figure", "folder.npy"], "to end in .png"),
    ("signals", ["--input", "good.npy", "--figure", "no/x.png"], "in a directory that exists"),
    ("signals", ["--input", "good.npy", "--output", "folder.npy"], "to be a file"),
    ("signals", ["--input", "good.npy", "--output", "good.npy"], "another file than --input"),
    ("signals", ["--input", "good.npy", "--output", "link.npy"], "another file than --input"),
    ("signals", ["--input", "link.npy", "--output", "good.npy"], "another file than --input"),
    ("signals", ["--input", "good.npy", "--output", "/dev/null"], "to end in .npy or .csv"),
    ("signals", ["--input", "good.npy", "--output", "/proc/x.npy"], "cannot write /proc/x.npy"),
    ("signals", ["--input", "good.npy", "--output", "loop.csv"], "symbolic links"),
    ("signals", ["--input", "good.npy", "--output", "pipe.csv"], "not a regular file"),
    ("signals", ["--input", "good.npy", "--figure", "pipe.png"], "not a regular file"),
    ("signals", ["--input", "good.npy", "--output", "loop.csv/x.csv"], "a directory that exists"),
    ("signals", ["--input", "good.npy", "--figure", "loop.png"], "symbolic links"),
    ("signals", ["--input", "good.npy", "--figure", "/proc/x.png"], "cannot write /proc/x.png"),
    ("signals", ["--input", "good.npy", "--figure", "x" * 252 + ".png"], "File name too long"),
    ("signals", ["--input", "loop.npy"], "symbolic links"),
    ("signals", ["--input", "loop.csv"], "symbolic links"),
    ("signals", ["--input", "loop.csv/x.csv"], "symbolic links"),
    ("signals", ["--inputs", "good.npy"], "unrecognized arguments"),
    ("texts", [], "expected a text"),
    ("texts", [""], "expected a text with words in it"),
    ("texts", [" \n "], "expected a text with words in it"),
    ("texts", ["zzz"], "at least one word that the run has seen"),
    ("texts", [f"{RED}{TURNED}"], "got none in '\\x1b[31m\\u202e'"),
    ("texts", ["a\0b"], "without NUL characters"),
    ("texts", ["a \udcff b"], "expected a text in UTF-8"),
    ("texts", ["a good film", "--input", "good.txt"], "or --input, got both; leave one out"),
    ("texts", ["a good film", "--output", "x.txt"], "no --output but for a table"),
    ("texts", ["a good film", "--beam", "5"], "for a run on translation alone"),
    ("texts", ["--input", "none.txt"], "No such file"),
    ("texts", ["--input", "."], "Is a directory"),
    ("texts", ["--input", "zero.txt"], "zero.txt"),
    ("texts", ["--input", "latin.txt"], "text in UTF-8 in latin.txt, line 2"),
    ("texts", ["--input", "binary.txt"], "got the binary file binary.txt"),
    ("texts", ["--input", "empty.txt"], "expected texts in --input empty.txt"),
    ("texts", ["--input", "long.txt"], "at most 10,000,000 characters in long.txt"),
    ("texts", ["--input", "unknown.txt"], "at least one word that the run has seen"),
    ("texts", ["a good film", "--figure", "/proc/x.png"], "cannot write /proc/x.png"),
    ("texts", ["--input", "loop.txt"], "symbolic links"),
    ("texts", ["--input", "gone/x.csv"], "cannot read gone/x.csv (No such file or directory)"),
    ("texts", ["zzz " * 100_000], "at least one word that the run has seen"),
    ("digits", ["--input", "loop.png"], "symbolic links"),
    ("digits", [], "expected --input FILE with a picture (PNG or JPEG), a folder of pictures"),
    ("digits", ["--input", "folder.npy"], "expected pictures (.png, .jpg, .jpeg, .bmp, .gif) in "),
    ("digits", ["a text"], "expected --input FILE with a picture"),
    ("digits", ["--input", "none.png"], "No such file"),
    ("digits", ["--input", "zero.png"], "zero.png"),
    ("digits", ["--input", "script.png"], "expected a picture (PNG, JPEG, BMP, GIF) in script.png"),
    ("digits", ["--input", "large.png"], "at most 67,108,864 pixels"),
    ("digits", ["--input", "long.png"], "and 65,535 a side, in long.png, got more"),
    ("digits", ["--input", "good.txt"], "got good.txt; save it as PNG"),
    ("digits", ["--input", "cut.idx"], "is damaged"),
    ("pairs", [], "expected a text"),
    ("pairs", ["zzz"], "at least one word that the run has seen"),
    ("pairs", [""], "words in it"),
    ("pairs", ["wort", "--beam", "0"], "--beam and --best above 0"),
    ("pairs", ["wort", "--beam", "-3"], "--beam and --best above 0"),
    ("pairs", ["wort", "--best", "0"], "--beam and --best above 0"),
    ("pairs", ["wort", "--best", "9"], "from 1 to the beam"),
    ("pairs", ["wort", "--beam", "100000000"], "expected --beam of at most 1,000"),
    ("pairs", ["wort", "--beam", "9" * 20], "expected --beam of at most 1,000"),
    ("pairs", ["wort", "--beam", "5.0"], "expected a whole number, got '5.0'"),
    ("pairs", ["wort", "--json", "--output", "x.txt"], "expected --output alone"),
    ("pairs", ["wort", "--output", "x.png"], "expected --output to be a text file"),
    ("pairs", ["wort", "--output", "folder.npy"], "expected --output to be a text file"),
    ("pairs", ["--input", "latin.txt"], "text in UTF-8 in latin.txt, line 2"),
    ("pairs", ["wort", "--output", "loop.txt"], "symbolic links"),
    ("pairs", ["wort", "--output", "zero.txt"], "not a regular file"),
    ("pairs", ["wort " * 300, "--figure", "x.png"], "at most 200 tokens to draw, got 300"),
]


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize(("run", "arguments", "said"), PREDICTIONS)
def test_a_bad_command_to_predict_is_one_line(run, arguments, said, request, capsys):
    assert said in complaint(capsys, "predict", request.getfixturevalue(run), *arguments)


def test_a_home_that_is_not_known_is_one_line_from_python(signals):
    for arguments in ({"workdir": "~nobody_x"}, {"manual_dir": "~nobody_x"}):
        with pytest.raises(
            UsageError, match="a home that is known, got ~nobody_x; write the whole"
        ):
            flax_attn.train("shapes_cnn:quick", **arguments)
    with pytest.raises(UsageError, match="a home that is known, got ~nobody_x"):
        flax_attn.export(signals, "~nobody_x")


def test_an_empty_path_is_one_line_from_python():
    with pytest.raises(UsageError, match="text that is not empty as the path of a run, got ''"):
        flax_attn.load("")
    with pytest.raises(UsageError, match="text that is not empty as workdir, got ''"):
        flax_attn.train("shapes_cnn", workdir="")
    assert list(Path.cwd().iterdir()) == []


def test_a_run_directory_inside_another_run_is_refused(signals, capsys):
    before = snapshot(signals)
    Path("link").symlink_to(signals)
    for place in ("figures", "checkpoints", "checkpoints/9/new", "new", "new/../figures"):
        for run in (signals, Path("link")):
            said = complaint(capsys, "train", "shapes_cnn", "--workdir", run / place)
            assert f"is inside the run {signals}; choose another" in said
            with pytest.raises(UsageError, match=r"is inside the run|has no config\.json"):
                experiment.run(experiment.Config.of(shapes_cnn.get_config("quick")), run / place)
    assert snapshot(signals) == before


@pytest.mark.usefixtures("inputs")
def test_an_output_never_takes_the_place_of_a_file_of_a_run(pairs, signals, capsys):
    (pairs / "figures").mkdir(exist_ok=True)
    before = snapshot(pairs)
    Path("link").symlink_to(pairs)
    Path("link.html").symlink_to(pairs / "config.json")
    written = "expected --output to be none of the files that training wrote"
    for name in ("config.json", "sums.json", "metrics.jsonl", "tokenizer.json", ".lock"):
        for run in (pairs, Path("link")):
            said = complaint(capsys, "predict", pairs, "wort", "--output", run / name)
            assert written in said
    inside = "outside the checkpoints of a run"
    for flag, name in (("--output", "checkpoints/x"), ("--figure", "checkpoints/1/x.png")):
        said = complaint(capsys, "predict", pairs, "wort", flag, pairs / name)
        assert inside in said or "in a directory that exists" in said
    assert "-o to be none of the files" in complaint(capsys, "report", pairs, "-o", "link.html")
    said = complaint(capsys, "compare", pairs, "--output", pairs / "checkpoints")
    assert "--output outside the checkpoints" in said
    with pytest.raises(UsageError, match="got the run directory"):
        flax_attn.export(pairs, pairs)
    assert snapshot(pairs) == before
    assert main(["predict", str(pairs), "wort", "--output", str(pairs / "mine.txt")]) == 0
    (pairs / "mine.txt").unlink()


@pytest.mark.parametrize("is_listed", [True, False])
@pytest.mark.parametrize("name", ["labels.json", "tokenizer.json"])
@pytest.mark.parametrize("kind", ["pipe", "endless", "outside"])
def test_what_a_stranger_puts_in_place_of_words_is_not_read(texts, capsys, kind, name, is_listed):
    """A file that the list of sums leaves out is met by its reader alone."""
    run = Path(shutil.copytree(texts, "run"))
    if not is_listed:
        sums.write(run, sums.read(run).keys() - {name})
    (run / name).unlink()
    Path("outside.json").write_text('["canary", "bird"]')
    if kind == "pipe":
        os.mkfifo(run / name)
    else:
        (run / name).symlink_to({"endless": "/dev/zero", "outside": "../outside.json"}[kind])
    with ending():
        said = complaint(capsys, "predict", run, "a good film")
    assert name in said
    assert "canary" not in said


def test_an_output_through_a_link_leaves_the_link(pairs):
    Path("link.txt").symlink_to("real.txt")
    assert main(["predict", str(pairs), "wort", "--output", "link.txt"]) == 0
    assert Path("link.txt").is_symlink()
    assert Path("real.txt").read_text().count("\n") == 1


def test_a_comparison_that_cannot_be_written_leaves_nothing(signals, capsys):
    said = complaint(capsys, "compare", signals, "--output", "new/deep/" + "x" * 300)
    assert "File name too long" in said
    for name in ("loss.png", "predictions.png"):
        Path("plots", name).mkdir(parents=True)
        said = complaint(capsys, "compare", signals, "--output", "plots")
        assert "cannot write to --output plots (not a regular file)" in said
        Path("plots", name).rmdir()


def test_a_comparison_that_ends_early_leaves_no_empty_directory(signals, capsys, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flax_attn.analysis.tables.print_comparison", full)
    assert "No space left" in complaint(capsys, "compare", signals, "--output", "new/plots")


@pytest.mark.usefixtures("inputs")
def test_two_outputs_in_one_place_are_refused(signals, capsys):
    Path("out.csv").symlink_to("new.png")
    both = ["--output", "out.csv", "--figure", "new.png"]
    said = complaint(capsys, "predict", signals, "--input", "good.npy", *both)
    assert "expected a file for each output, got out.csv and new.png, which are one" in said


def test_what_is_beyond_the_most_tokens_of_a_text_is_told(texts, capsys):
    assert main(["predict", str(texts), "good " * 200, "a good film " * 100]) == 0
    said = "warning: text 2 has 300 tokens, and the run reads the first 200"
    told = capsys.readouterr().err
    assert said in told
    assert "text 1" not in told


@pytest.mark.parametrize(
    ("command", "written"),
    [
        ("compare /none 2>&-", ""),
        ("compare /none 2>/dev/full", ""),
        ("--version 2>&-", "flax-attn"),
    ],
)
def test_where_no_error_can_be_written_the_exit_code_tells(command, written):
    line = f"unset PYTHONUNBUFFERED; exec {sys.executable} -m flax_attn {command}"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.startswith(written)
    assert (done.returncode, bool(done.stdout)) == (0 if written else 2, bool(written))


def test_what_is_for_another_command_is_told(signals, capsys):
    """Weights, a run for the demo, and a picture where several are drawn."""
    np.savez("w.npz", weights=np.eye(3))
    assert "flax-attn report w.npz shows weights" in complaint(capsys, "explore", "w.npz")
    said = complaint(capsys, "demo", str(signals))
    assert f"or flax-attn explore {signals}" in said
    said = complaint(capsys, "compare", str(signals), "--output", "out.png")
    assert "expected a folder as --output, for several pictures, got out.png" in said


@pytest.mark.parametrize(
    ("command", "unbuffered", "said"),
    [
        (f"train shapes_cnn {' '.join(SMALL)} --num_epochs=1 --workdir=out", "", "; what was"),
        (f"train shapes_cnn {' '.join(SMALL)} --num_epochs=1 --workdir=out", "1", "; what was"),
        ("predict dates monday", "", "\n"),
        ("--version", "", "\n"),
    ],
)
def test_an_output_that_is_full_is_told_apart_from_the_run_directory(command, unbuffered, said):
    line = f"exec {sys.executable} -m flax_attn {command} > /dev/full"
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert f"cannot read or write the output (No space left on device){said}" in done.stderr


@pytest.mark.parametrize(
    ("kinds", "said"),
    [
        (("signals", "images"), "got classification and regression; compare them apart"),
        (("signals", "series"), "got series and signals; compare them apart"),
        (("signals", "numbers"), "got numbers and signals; compare them apart"),
    ],
)
def test_runs_of_two_tasks_are_not_compared(kinds, said, capsys):
    for kind in kinds:
        write_run(Path(kind), kind)
    assert f"expected runs of one task, {said}" in complaint(capsys, "compare", *kinds)


def test_pictures_need_no_backend(tmp_path):
    write_run(tmp_path / "run")
    done = subprocess.run(
        [sys.executable, "-m", "flax_attn", "compare", "run"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "none_such"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "comparison" / "loss.png").is_file()


def test_more_classes_than_can_be_told_apart_are_refused(capsys):
    lines = "".join(f"word {i},{i // 4}\n" for i in range(4_004))
    Path("ids.csv").write_text("text,label\n" + lines)
    said = complaint(capsys, "train", "text_csv", "--data.file=ids.csv")
    assert "expected at most 1,000 classes, got 1,001, such as '0'" in said


@pytest.mark.parametrize(
    ("rows", "test_rows", "said"),
    [
        ("same,a\n" * 9 + "same,b\n" * 9, "", "texts that differ in t.csv, got 'same' in every"),
        ("one,a\ntwo,b\n" * 9, "two,b\n", "texts in data.test_file=u.csv that t.csv does not"),
    ],
)
def test_tables_from_which_nothing_can_be_told_are_refused(rows, test_rows, said, capsys):
    Path("t.csv").write_text(f"text,label\n{rows}")
    Path("u.csv").write_text(f"text,label\n{test_rows}")
    files = ["--data.file=t.csv", *(["--data.test_file=u.csv"] if test_rows else [])]
    assert said in complaint(capsys, "train", "text_csv", *files)


def test_a_report_with_a_model_that_cannot_be_written_is_one_line(signals, capsys, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    assert "No space left" in complaint(capsys, "report", signals, "-o", "report.html")


def test_a_comparison_that_cannot_be_written_prints_no_table(signals, capsys):
    assert "cannot write to --output /proc" in complaint(
        capsys, "compare", signals, "--output", "/proc"
    )


def test_json_that_is_nested_too_deep_is_one_line(signals, tmp_path, capsys):
    shutil.copytree(signals, tmp_path / "deep")
    (tmp_path / "deep" / "config.json").write_text("[" * 200_000)
    for command in ("predict", "compare"):
        complaint(capsys, command, tmp_path / "deep")
    complaint(capsys, "train", "shapes_cnn", "--workdir", tmp_path / "deep")


def test_a_signal_of_excel_begins_with_a_mark_and_is_read(signals, tmp_path, capsys):
    rows = "\r\n".join(",".join(str(i + j) for j in range(100)) for i in range(2))
    for name, mark in (("marked.csv", "\ufeff"), ("plain.csv", "")):
        (tmp_path / name).write_text(mark + rows + "\r\n", encoding="utf-8")
        assert main(["predict", str(signals), "--input", str(tmp_path / name)]) == 0
    first, second = (tmp_path / f"{name}.predictions.csv" for name in ("marked", "plain"))
    assert first.read_bytes() == second.read_bytes()
    assert "wrote" in capsys.readouterr().out


# --- what is printed of data ---------------------------------------------------------------------


def is_plain(text):
    """Whether no character of a text steers a terminal."""
    return not {"\x1b", TURNED, "\x7f", "\x9b", "\r", "\x07"} & set(text)


def test_labels_and_texts_are_printed_with_escapes(texts, tmp_path, capsys):
    run, source = str(texts), f"a good {RED}film{TURNED}\x7f\x9b"
    (tmp_path / "in.txt").write_text(f"{source}\nbad 2\n", encoding="utf-8")
    for arguments in ([source], ["--input", str(tmp_path / "in.txt")]):
        assert main(["predict", run, *arguments]) == 0
        out, err = capsys.readouterr()
        assert is_plain(out + err)
        for escaped in ("yes\\u202e", "no\\x1b[31m", "\\x1b[31mfilm\\u202e\\x7f\\x9b"):
            assert escaped in out
    assert main(["predict", run, "--json", source]) == 0
    out, err = capsys.readouterr()
    assert is_plain(out + err)
    (row,) = json.loads(out)
    assert row["input"] == source
    assert set(row["classes"]) == {f"yes{TURNED}", f"no{RED}"}
    assert json.loads((texts / "labels.json").read_text()) == [f"no{RED}", f"yes{TURNED}"]


def test_translations_and_what_is_unknown_are_printed_with_escapes(pairs, tmp_path, capsys):
    source = f"wort {RED}neu{TURNED} 3"
    assert main(["predict", str(pairs), source, "--best", "2"]) == 0
    out, err = capsys.readouterr()
    assert is_plain(out + err)
    assert "what the run does not know: \\x1b[31mneu\\u202e" in err
    assert "wort \\x1b[31mneu\\u202e 3" in out
    assert main(["predict", str(pairs), source, "--json"]) == 0
    out, err = capsys.readouterr()
    assert is_plain(out + err)
    assert json.loads(out)[0]["input"] == source


def test_names_of_files_and_runs_are_printed_with_escapes(texts, signals, tmp_path, capsys):
    np.save(tmp_path / f"{RED}{TURNED}.npy", np.zeros((1, 100)))
    assert main(["predict", str(signals), "--input", str(tmp_path / f"{RED}{TURNED}.npy")]) == 0
    shutil.copytree(signals, tmp_path / f"run{RED}")
    assert main(["compare", str(tmp_path / f"run{RED}"), str(tmp_path / f"run{RED}")]) == 0
    command = ["train", "shapes_cnn", "--workdir", str(tmp_path / f"run{RED}")]
    assert main(command) == 2
    assert is_plain("".join(capsys.readouterr()))


def test_pictures_of_such_texts_are_whole(texts, pairs, tmp_path):
    """A control character makes an SVG that no program reads, half a pair makes no picture."""
    from xml.etree import ElementTree

    for run, text in ((texts, f"a good {RED}film{TURNED}"), (pairs, f"wort {RED} 3")):
        for path in (tmp_path / "x.svg", tmp_path / "x.png"):
            assert main(["predict", str(run), text, "--figure", str(path)]) == 0
        ElementTree.parse(tmp_path / "x.svg")
    figure = flax_attn.plot.attention(
        np.eye(2), ["\x1b", "\udcff"], ["\ufffe", "b"], title="\udcff\x07"
    )
    figure.savefig(tmp_path / "x.svg")
    ElementTree.parse(tmp_path / "x.svg")


@pytest.mark.parametrize(
    "environment",
    [
        pytest.param({"PYTHONIOENCODING": "latin-1"}, marks=pytest.mark.full),
        pytest.param({"PYTHONIOENCODING": "ascii"}, marks=pytest.mark.full),
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_a_terminal_of_another_encoding_shows_question_marks(environment, signals, texts):
    """`train` on a finished run prints its table, and `predict` its bars."""
    changed = tiny.CNN | tiny.SHAPES | {"num_epochs": 1}
    flags = [f"--{key}={value}" for key, value in changed.items()]
    commands = (
        ["train", "shapes_cnn:quick", *flags, f"--workdir={signals}"],
        ["predict", str(texts), "a good film"],
        ["predict", str(texts), "a good film", "--json"],
    )
    code = "import json, sys; from flax_attn.__main__ import main\n"
    code += "for command in json.loads(sys.argv[1]): print('code', main(command))"
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(commands)],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        timeout=240,
    )
    assert (done.returncode, done.stderr) == (0, b""), done.stderr
    *said, rest = done.stdout.split(b"code 0")
    assert (len(said), rest) == (3, b"\n")
    assert b"?" in said[1]
    assert f"yes{TURNED}" in json.loads(said[2].decode("ascii"))[0]["classes"]


def test_a_name_that_leads_to_a_file_is_no_config_of_the_package(tmp_path):
    """It may come from a stranger's run directory: nothing is run."""
    (tmp_path / "evil.py").write_text("raise SystemExit('run')")
    name = os.path.relpath(tmp_path / "evil", config_files.folder())
    for stranger in (name, "../configs/shapes_cnn", "none", "base"):
        assert config_files.read_shipped(stranger) is None
    assert config_files.read_shipped("shapes_cnn").name == "shapes_cnn"


@pytest.mark.parametrize("width", [40, 60, 100])
def test_the_list_of_configs_fits_its_width(width):
    assert max(map(len, config_files.listed(width).splitlines())) <= width


def test_a_file_as_a_text_is_told_where_it_goes(tmp_path, capsys):
    (tmp_path / "dates.txt").write_text("24th of december 1999\n")
    assert main(["predict", "dates", str(tmp_path / "dates.txt")]) == 2
    assert "expected a text, got the file" in (said := capsys.readouterr().err)
    assert said.endswith("give it by --input\n")
    more = ["--input", str(tmp_path / "dates.txt"), str(tmp_path / "dates.txt")]
    assert main(["predict", "dates", *more]) == 2
    assert "give one --input, as a folder of pictures" in capsys.readouterr().err


def test_a_file_as_the_folder_of_data_sets_and_texts_without_quotes_are_told(tmp_path, capsys):
    file = tmp_path / "data.csv"
    file.touch()
    assert main(["train", "mnist_mlp:quick", f"--manual_dir={file}"]) == 2
    assert f"expected a folder, got the file {file}" in capsys.readouterr().err
    assert main(["predict", "dates", "may", "june"]) == 0
    assert "note: 2 texts of one word; one of several words stands" in capsys.readouterr().err


def test_a_flag_without_its_value_and_a_colon_without_a_variant_are_told():
    with pytest.raises(UsageError, match=r"a value for --data.file, such as --data.file=VALUE$"):
        config_files.overrides(["--data.file"], {"data.file": ""})
    with pytest.raises(UsageError, match=r"a variant after shapes_cnn:, such as shapes_cnn:quick"):
        config_files.read("shapes_cnn:")

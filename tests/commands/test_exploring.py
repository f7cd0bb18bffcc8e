"""Which runs a page may show beside each other, and where it opens."""

import argparse
import inspect
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from flax_attn.commands import exploring
from flax_attn.errors import UsageError
from flax_attn.explore.server import with_token

# what takes runs is asked with what is none: only sizes matter here
check_inputs = inspect.unwrap(exploring.check_inputs)


def run(name, *shape):
    task = SimpleNamespace(name=name, inputs=SimpleNamespace(shape=shape))
    return SimpleNamespace(task=task)


@pytest.mark.parametrize(
    ("one", "other", "fit"),
    [
        (run("signal-signal", 100, 1), run("signal-signal", 100, 1), True),
        (run("signal-signal", 100, 1), run("signal-number", 100, 1), True),
        (run("text-classes"), run("text-classes"), True),
        (run("signal-signal", 100, 1), run("image-classes", 28, 28), True),
        (run("signal-signal", 100, 1), run("signal-signal", 50, 1), False),
        (run("image-classes", 28, 28), run("image-classes", 8, 8), False),
    ],
)
def test_two_runs_on_inputs_of_one_kind_and_size_may_stand_side_by_side(one, other, fit):
    if fit:
        return check_inputs([one, other])
    with pytest.raises(UsageError, match=re.escape(str(other.task.inputs.shape))):
        check_inputs([one, other])


def test_three_runs_are_too_many():
    args = argparse.Namespace(runs=[Path("run")] * 3, allow=[], port=None, open=False)
    with pytest.raises(UsageError, match="got 3"):
        exploring.explore(args)


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ""}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"BROWSER": "lynx"}, True),
        ("darwin", {}, True),
        ("win32", {}, True),
    ],
)
def test_a_browser_is_opened_where_there_is_a_screen(monkeypatch, platform, variables, expected):
    monkeypatch.setattr(exploring.sys, "platform", platform)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert exploring.has_screen() is expected


def test_the_token_stands_in_the_head_alone_and_is_escaped():
    page = with_token("<head></head><p><head>", 'a"b')
    own = '<meta name="flax-attn-token" content="a&quot;b">'
    assert page == f'<head>{own}<link rel="icon" href="data:,"></head><p><head>'

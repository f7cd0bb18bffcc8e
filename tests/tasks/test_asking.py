"""What a page may ask, and the one line that it is told where it may not."""

import numpy as np
import pytest

from flax_attn.errors import UsageError
from flax_attn.tasks.asking import MOST_CHANGES, Settings, View, read

NUMBERS = {"inputs": {"signal": {"shape": [2, 1], "data": [1, 2.5]}}}


def asked(**settings):
    return NUMBERS | {"settings": settings}


def own(shape, data):
    return {"inputs": {"signal": {"shape": shape, "data": data}}}


def test_numbers_and_settings_are_read():
    settings = {"normalizer": "hard", "temperature": 2, "reach": 3, "causal": True, "hidden": [4]}
    read_request = read(asked(**settings))
    assert read_request.settings == Settings("hard", 2, 3, True, (4,))
    np.testing.assert_array_equal(read_request.numbers(), [[1], [2.5]])
    assert read({"inputs": {"text": "a b"}}).words() == "a b"
    assert read(NUMBERS).settings == Settings()


BAD = {
    "nothing": None,
    "a list": [1],
    "no inputs": {"settings": {}},
    "two inputs": {"inputs": {"a": {}, "b": {}}},
    "a text that is none": {"inputs": {"text": 3}},
    "no shape": {"inputs": {"a": {"data": [1]}}},
    "a shape below 1": own([0], []),
    "a shape of words": own(["x"], [1]),
    "too many axes": own([1] * 5, [1]),
    "too few numbers": own([3], [1]),
    "a huge shape": own([10**9, 10**9], [1]),
    "NaN": own([1], [float("nan")]),
    "infinity": own([1], [float("inf")]),
    "an endless integer": own([1], [10**400]),
    "words": own([1], ["1"]),
    "truth": own([1], [True]),
    "settings that are none": NUMBERS | {"settings": [1]},
    "perhaps brief": NUMBERS | {"brief": 1},
    "temprature": asked(temprature=1),
    "normalizer": asked(normalizer="soft"),
    "temperature": asked(temperature=0),
    "temperature NaN": asked(temperature=float("nan")),
    "temperature of words": asked(temperature="1"),
    "reach": asked(reach=-1),
    "reach of a half": asked(reach=1.5),
    "causal": asked(causal=1),
    "hidden": asked(hidden=[1000]),
    "hidden words": asked(hidden=["the"]),
    "cut": asked(cut=[[1]]),
    "changes": NUMBERS | {"changes": [{}] * (MOST_CHANGES + 1)},
}


@pytest.mark.parametrize("name", BAD)
def test_a_request_out_of_range_is_one_line_that_names_the_setting(name):
    request = BAD[name]
    with pytest.raises(UsageError) as error:
        read(request).numbers()
    assert "\n" not in str(error.value)
    if isinstance(request, dict) and request.get("settings") and request["settings"] != [1]:
        assert name.split()[0] in str(error.value)


def test_a_text_is_no_number_and_an_empty_one_is_no_text():
    with pytest.raises(UsageError, match="expected numbers, got a text"):
        read({"inputs": {"text": "a"}}).numbers()
    with pytest.raises(UsageError, match="expected a text, got numbers"):
        read(NUMBERS).words()
    with pytest.raises(UsageError, match="got an empty one"):
        read({"inputs": {"text": " \n"}}).words()


def test_a_change_comes_on_top_of_the_settings():
    """What is hidden and cut stays so; the other settings of a change have no effect."""
    settings = {"temperature": 2, "hidden": [1], "cut": [[0, 1]]}
    changes = [{"hidden": [2]}, {"cut": [[1, 0]], "temperature": 3}]
    own = read(asked(**settings) | {"changes": changes})
    assert own.changes == (
        Settings(temperature=2, hidden=(1, 2), cut=((0, 1),)),
        Settings(temperature=2, hidden=(1,), cut=((0, 1), (1, 0))),
    )
    most = read(NUMBERS | {"changes": [{}] * MOST_CHANGES})
    assert most.changes == (Settings(),) * MOST_CHANGES


def test_a_view_is_the_first_head_where_none_is_asked_for():
    assert read(NUMBERS).view == View(0, 0, None)
    view = {"attention": 3, "head": 2, "token": 5}
    assert read(NUMBERS | {"view": view}).view == View(3, 2, 5)
    assert read(NUMBERS | {"brief": True}).brief
    assert not read(NUMBERS).brief

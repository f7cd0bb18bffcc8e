"""What a page may ask, and the one line that it is told where it may not."""

import numpy as np
import pytest

from flax_attn.errors import UsageError
from flax_attn.tasks.asking import MOST_CHANGES, Settings, View, longer, read, rounded

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
    "nothing": (None, "a request with inputs"),
    "a list": ([1], "a request with inputs"),
    "no inputs": ({"settings": {}}, "a request with inputs"),
    "two inputs": ({"inputs": {"a": {}, "b": {}}}, "expected one input, got 2"),
    "a text that is none": ({"inputs": {"text": 3}}, "expected a text, got '3'"),
    "no shape": ({"inputs": {"a": {"data": [1]}}}, "its shape and data"),
    "a shape below 1": (own([0], []), "whole numbers above 0"),
    "a shape of words": (own(["x"], [1]), "whole numbers above 0"),
    "too many axes": (own([1] * 5, [1]), "whole numbers above 0"),
    "too few numbers": (own([3], [1]), "expected 3 numbers"),
    "a huge shape": (own([10**9, 10**9], [1]), "numbers for the shape"),
    "NaN": (own([1], [float("nan")]), "finite numbers"),
    "infinity": (own([1], [float("inf")]), "finite numbers"),
    "an endless integer": (own([1], [10**400]), "finite numbers"),
    "words": (own([1], ["1"]), "finite numbers"),
    "truth": (own([1], [True]), "finite numbers"),
    "an unknown setting": (asked(temprature=1), "unknown setting 'temprature'; did you mean"),
    "an unknown normaliser": (asked(normalizer="soft"), "unknown normaliser 'soft'; did you mean"),
    "a normaliser that is none": (asked(normalizer=[1]), "unknown normaliser"),
    "no temperature": (asked(temperature=0), "a temperature from 0.001"),
    "temperature NaN": (asked(temperature=float("nan")), "a temperature from"),
    "temperature of words": (asked(temperature="1"), "a temperature from"),
    "reach below 0": (asked(reach=-1), "a reach of 0 or more"),
    "half a reach": (asked(reach=1.5), "a reach of 0 or more"),
    "perhaps causal": (asked(causal=1), "true or false"),
    "perhaps brief": (NUMBERS | {"brief": 1}, "true or false for brief"),
    "hidden elsewhere": (asked(hidden=[1000]), "positions from 0 to 999"),
    "hidden words": (asked(hidden=["the"]), "positions from 0 to 999"),
    "hidden number": (asked(hidden=3), "positions from 0 to 999"),
    "settings that are none": (NUMBERS | {"settings": [1]}, "settings by name"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_asked_is_one_line(name):
    request, said = BAD[name]
    with pytest.raises(UsageError) as error:
        read(request)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_text_is_no_number_and_an_empty_one_is_no_text():
    with pytest.raises(UsageError, match="expected numbers, got a text"):
        read({"inputs": {"text": "a"}}).numbers()
    with pytest.raises(UsageError, match="expected a text, got numbers"):
        read(NUMBERS).words()
    with pytest.raises(UsageError, match="got an empty one"):
        read({"inputs": {"text": " \n"}}).words()


@pytest.mark.parametrize(
    ("length", "expected"), [(1, 8), (8, 8), (9, 16), (16, 16), (17, 32), (1000, 1024)]
)
def test_a_text_is_padded_to_a_power_of_two_from_8_on(length, expected):
    assert rounded(length) == expected


def test_padding_is_behind_what_has_a_number_for_each_token():
    ones = {"tokens": np.ones((1, 2)), "lengths": np.ones(1), "ngrams": np.ones((1, 2, 3))}
    padded = longer(ones, 4)
    assert {name: own.shape for name, own in padded.items()} == {
        "tokens": (1, 4),
        "lengths": (1,),
        "ngrams": (1, 4, 3),
    }
    assert padded["tokens"].tolist() == [[1, 1, 0, 0]]
    assert padded["ngrams"][0, :, 0].tolist() == [1, 1, 0, 0]


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
    with pytest.raises(UsageError, match=f"a list of at most {MOST_CHANGES} changes"):
        read(NUMBERS | {"changes": [{}] * (MOST_CHANGES + 1)})


def test_a_view_is_the_first_head_where_none_is_asked_for():
    assert read(NUMBERS).view == View(0, 0, None)
    view = {"attention": 3, "head": 2, "token": 5}
    assert read(NUMBERS | {"view": view}).view == View(3, 2, 5)
    assert read(NUMBERS | {"brief": True}).brief
    assert not read(NUMBERS).brief

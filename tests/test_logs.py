"""Handlers of the root logger stay the user's."""

import contextlib
import logging

import absl.logging
import pytest

from flax_attn.data.builders import same_handlers


@pytest.mark.parametrize("raises", [False, True])
def test_the_handler_that_absl_adds_is_taken_back(monkeypatch, raises):
    monkeypatch.setattr(logging.root, "handlers", [])  # without pytest's own
    with contextlib.suppress(KeyError), same_handlers():
        absl.logging.info("a line")
        assert len(logging.root.handlers) == 1
        if raises:
            raise KeyError
    assert logging.root.handlers == []


def test_the_users_own_handlers_stay(monkeypatch):
    own = logging.NullHandler()
    monkeypatch.setattr(logging.root, "handlers", [own])
    with same_handlers():
        absl.logging.info("a line")
    assert logging.root.handlers == [own]

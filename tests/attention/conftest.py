"""Hundreds of small programs run once each: what XLA would gain by optimising them it loses many times over."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def compile_quickly():
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)

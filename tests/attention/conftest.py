import pytest


@pytest.fixture(autouse=True, scope="module")
def in_a_hurry(compile_quickly):
    """Every test here compiles quickly."""

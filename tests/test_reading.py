"""Functions and lines are short enough to be read at a glance.

A line of a function counts unless it is blank or part of its docstring. Decorators do not count.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ["flax_attn", "configs"]

LINE_WIDTH = 100
FUNCTION_LINES = 45
FORWARD_LINES = 30
FORWARD_PASSES = {"__call__", "decode", "encode", "decode_step", "start"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def function_lines(function: Function, lines: list[str]) -> int:
    """Lines from `def` to the end of the function, without its docstring and blank lines."""
    counted = set(range(function.lineno, function.end_lineno + 1))
    if ast.get_docstring(function) is not None:
        docstring = function.body[0]
        counted -= set(range(docstring.lineno, docstring.end_lineno + 1))
    return sum(bool(lines[number - 1].strip()) for number in counted)


def faults(source: str) -> list[str]:
    """What is too long in the source of a file."""
    lines = source.splitlines()
    too_long = []
    for number, line in enumerate(lines, start=1):
        if len(line) > LINE_WIDTH:
            too_long.append(f"line {number}: {len(line)} columns, expected at most {LINE_WIDTH}")
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, Function):
            continue
        limit = FORWARD_LINES if node.name in FORWARD_PASSES else FUNCTION_LINES
        length = function_lines(node, lines)
        if length > limit:
            too_long.append(f"{node.name}: {length} lines of code, expected at most {limit}")
    return too_long


@pytest.mark.parametrize("folder", FOLDERS)
def test_lines_and_functions_are_short(folder):
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    too_long = [
        f"{path.relative_to(ROOT)}: {fault}" for path in paths for fault in faults(path.read_text())
    ]
    assert not too_long, "\n".join(too_long)


def test_each_limit_is_held_to_the_line():
    def with_body(name, length):
        body = ["    x = 1  # \N{MIDDLE DOT}"] * (length - 1)
        return "\n".join(
            ["@decorator", f"def {name}():", '    """Two', "", '    lines."""', "", *body]
        )

    for name, limit in (
        ("attend", FUNCTION_LINES),
        ("__call__", FORWARD_LINES),
        ("encode", FORWARD_LINES),
    ):
        assert faults(with_body(name, limit)) == []
        assert faults(with_body(name, limit + 1)) == [
            f"{name}: {limit + 1} lines of code, expected at most {limit}"
        ]
    assert faults("#" * LINE_WIDTH) == []
    assert len(faults("#" * (LINE_WIDTH + 1))) == 1


VAGUE = {"found", "seen", "joined", "given", "each"}  # names that say nothing of the thing


def bound_names(tree):
    """The names that code gives to values, arguments, functions and classes, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, Function | ast.ClassDef | ast.ExceptHandler | ast.alias):
            yield (node.asname if isinstance(node, ast.alias) else node.name) or "", node.lineno


def vague_names(source):
    """Words in names that no value has as its own; names of tests are sentences."""
    return [
        f"line {line}: {name}"
        for name, line in bound_names(ast.parse(source))
        if VAGUE & set(name.split("_")) and not name.startswith("test_")
    ]


@pytest.mark.parametrize("folder", [*FOLDERS, "tests", "benchmarks", "docs"])
def test_a_name_says_what_the_thing_is(folder):
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths
    vague = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in paths
        for name in vague_names(path.read_text())
    ]
    assert not vague, "\n".join(vague)


def test_vague_names_are_noticed_wherever_they_are_bound():
    for code in (
        "found = 1",
        "found: int = 1",
        "for i, each in pairs: pass",
        "with open(path) as given: pass",
        "def f(*, seen=None): pass",
        "rows = [joined for joined in parts]",
        "(first, *found) = row",
        "if (seen := f()): pass",
        "f = lambda found_x: 1",
        "import numpy as found",
    ):
        assert len(vague_names(code)) == 1, code
    assert vague_names("# each\nrows = {'found': given.seen(each=1)}") == []


def test_any_is_rare():
    """A type says more than `Any`. An alias in `flax_attn.types` says why there is none."""
    lines = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sorted((ROOT / "flax_attn").rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if re.search(r"\bAny\b", line) and "import" not in line and "configs" not in path.parts
    ]
    assert len(lines) <= 40, "\n".join(lines)

"""Docstrings as Sphinx reads them.

A docstring is plain text: names in single backticks, formulas and code in indented blocks, and
sections such as `Args:`. Here it becomes reStructuredText. The shapes that stand in annotations are
added, which tests check as the code runs.
"""

import ast
import dataclasses
import inspect
import itertools
import pkgutil
import re
import textwrap
from typing import TYPE_CHECKING, Any, get_args

from docs._ext.names import public_names

if TYPE_CHECKING:  # tests of docstrings run without Sphinx
    from sphinx.application import Sphinx

SECTIONS = {"Args:", "Attributes:", "Returns:", "Raises:"}
INDENT = " " * 4
NAMES = public_names()


def as_rst(text: str) -> list[str]:
    """Returns a docstring as lines of reStructuredText."""
    rst, section = [], ""
    text = re.sub(r"`([^`]+)`", lambda code: literal(code[1]), text)
    for kind, group in itertools.groupby(text.splitlines(), Kinds()):
        lines = list(group)
        if kind == "section":
            section = lines[0].removesuffix(":")
            rst += ["", f".. rubric:: {section}", ""]
        elif kind == "indented" and section:
            rst += ["", *items(textwrap.dedent("\n".join(lines)).splitlines()), ""]
        elif kind == "indented":
            rst += ["", *block(textwrap.dedent("\n".join(lines)).strip("\n")), ""]
        elif kind == "table":
            rst += ["", *table(lines), ""]
        else:
            rst += lines
        section = section if kind == "section" else ""
    return rst


class Kinds:
    """What a line belongs to; a blank line between two indented ones belongs to them."""

    def __init__(self) -> None:
        self.kind = ""

    def __call__(self, line: str) -> str:
        if line in SECTIONS:
            self.kind = "section"
        elif line.startswith(INDENT) or (not line.strip() and self.kind == "indented"):
            self.kind = "indented"
        else:
            self.kind = "table" if line.startswith("|") else "text"
        return self.kind


def literal(code: str) -> str:
    """Code in a sentence: a link if it is a public name."""
    code = " ".join(code.split())
    name = code.removesuffix("()")
    return f":py:obj:`{code} <{NAMES[name]}>`" if name in NAMES else f"``{code}``"


def items(lines: list[str]) -> list[str]:
    """Returns the entries of a section, `name: text`, as definitions; other text as it is."""
    rst = []
    for line in lines:
        entry = re.match(r"(\w+(?:, \w+)*): (.*)", line)
        if entry:
            rst += [", ".join(f"``{name}``" for name in entry[1].split(", ")), INDENT + entry[2]]
        else:
            rst.append(line)
    return rst


def block(text: str) -> list[str]:
    """Returns an indented block: code where Python can read it, or else a formula."""
    text = re.sub(r"``([^`]+)``|:py:obj:`([^` ]+) <[^`]+>`", r"`\1\2`", text)  # as it was
    try:
        ast.parse(text)
        language = "python"
    except SyntaxError:
        language = "text"
    return [f".. code-block:: {language}", "", *textwrap.indent(text, INDENT).splitlines()]


def table(lines: list[str]) -> list[str]:
    """Returns a table of Markdown."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rst = [".. list-table::", "   :header-rows: 1", ""]
    for row in rows[:1] + rows[2:]:
        rst += [f"   {'* -' if number == 0 else '  -'} {cell}" for number, cell in enumerate(row)]
    return rst


def shapes(function: Any) -> str:  # Any: all that autodoc documents
    """Returns the shapes of a function's arrays, by name; empty without any."""
    names = {}
    for name, annotation in inspect.get_annotations(inspect.unwrap(function)).items():
        parts = getattr(annotation, "__args__", None) or (annotation,)  # of a tuple or a union
        written = " and ".join(filter(None, map(shape_of, parts)))
        if written:
            names["result" if name == "return" else f"``{name}``"] = written
    return ", ".join(f"{name} {shape}" for name, shape in names.items())


def shape_of(annotation: Any) -> str:
    """The shape in an annotation of jaxtyping, as docstrings write it; empty where it says none."""
    if getattr(annotation, "dim_str", "...") in ("", "..."):
        return ""
    names = [
        "..." if name.startswith(("*", "...")) else name.lstrip("#")
        for name in annotation.dim_str.split()
    ]
    end = "," if len(names) == 1 and names != ["..."] else ""
    return f"``({', '.join(names)}{end})``"


def defaults(owner: type) -> dict[str, str | None]:
    """The fields of a dataclass or named tuple, each with its default as the source has it."""
    fields = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("flax_attn"):
            (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
            for node in definition.body:
                if isinstance(node, ast.AnnAssign):
                    fields[node.target.id] = node.value and ast.unparse(node.value)
    return fields


def change_docstring(
    app: "Sphinx", what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    rst = as_rst("\n".join(lines))
    call = vars(value).get("__call__") if what == "class" else None
    if call is not None and call.__doc__ is None:  # has no entry of its own
        value = call
    sentence = shapes(value) if inspect.isfunction(value) else ""
    if sentence:
        end = rst.index("") if "" in rst else len(rst)
        rst[end:end] = ["", f"Shapes: {sentence}.", ""]
    lines[:] = rst


def change_signature(
    app: "Sphinx", what: str, name: str, value: Any, options: Any, signature: str, returns: str
) -> tuple[str, str] | None:
    """Returns the fields of a class as its arguments; those that linen adds are left out.

    What nnx calls to make a module takes all arguments: they are those of `__init__`.
    """
    if what == "class" and (dataclasses.is_dataclass(value) or hasattr(value, "_fields")):
        texts, parts = defaults(value), []
        make = value.__init__ if dataclasses.is_dataclass(value) else value
        for name, parameter in inspect.signature(make).parameters.items():
            if name not in texts:  # `self`, or of linen
                continue
            if parameter.kind == parameter.KEYWORD_ONLY and "*" not in parts:
                parts.append("*")
            parts.append(name if texts[name] is None else f"{name}={texts[name]}")
        return f"({', '.join(parts)})", returns
    if what in ("function", "method") and "**limits" in signature:
        return signature.replace("**limits", ", ".join(limits_of(value))), returns
    if what == "class" and signature == "(*args, **kwargs)":
        _, *parameters = inspect.signature(value.__init__).parameters.values()
        plain = [part.replace(annotation=inspect.Parameter.empty) for part in parameters]
        return str(inspect.Signature(plain)), returns
    return None


def limits_of(function: Any) -> list[str]:
    """Returns the limits that a function takes as `**limits`, with their defaults."""
    (names,) = get_args(function.__annotations__["limits"])  # of `Unpack`
    given = {"causal": "False", "query_offset": "0"}
    return [f"{name}={given.get(name, 'None')}" for name in names.__annotations__]


def forget_signatures() -> None:
    """Removes the signatures of `with_limits`: autodoc looks for their defaults in the source."""
    for value in map(pkgutil.resolve_name, NAMES.values()):
        function = vars(value).get("__call__") if inspect.isclass(value) else value
        while inspect.isfunction(function):
            vars(function).pop("__signature__", None)
            function = getattr(function, "__wrapped__", None)


def skip(
    app: "Sphinx", what: str, name: str, value: Any, skipped: bool, options: Any
) -> bool | None:
    """Leaves out the fields of a class, which its docstring describes; one may hold a function."""
    is_method = isinstance(value, property) or "." in getattr(value, "__qualname__", "")
    return None if is_method else True


def setup(app: "Sphinx") -> dict[str, bool]:
    forget_signatures()
    app.connect("autodoc-process-docstring", change_docstring)
    app.connect("autodoc-process-signature", change_signature)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

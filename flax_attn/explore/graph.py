"""Several jaxprs as one graph of equations, without duplicates and constant subexpressions.

A value of the graph is a number: an input, a constant, or an output of an equation. Two equations
of one primitive, with equal parameters and inputs, are one. So programs that begin alike share
what they begin with. The calls in a jaxpr (`jit`, `custom_jvp_call` and others) are written out.
"""

import itertools
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var
from jax.typing import ArrayLike
from jaxtyping import Array

from flax_attn.explore.primitives import BODIES, bodies, dtype_name, parameters
from flax_attn.types import Json, JsonObject

CALLED = ("jaxpr", "call_jaxpr", "fun_jaxpr")  # parameters that hold a program that is just called
SMALL = 1024  # bytes up to which a constant is kept as it is
AN_EQUATION = 64  # bytes of an equation as JSON

Aval = Any  # the shape and dtype of a value: JAX has no public type for all of them


class Equation(NamedTuple):
    """An equation of the graph. Its outputs are consecutive values."""

    source: JaxprEqn
    inputs: tuple[int, ...]
    outputs: range


class Graph:
    """A graph of equations over inputs.

    Attributes:
        avals: the shape and dtype of each value.
        inputs: the values that are inputs.
        constants: the arrays of values that are constants.
        equations: the equation that makes each other value.
    """

    def __init__(self, inputs: Sequence[Aval]):
        self.avals: list[Aval] = list(inputs)
        self.inputs = range(len(inputs))
        self.constants: dict[int, np.ndarray] = {}
        self.equations: dict[int, Equation] = {}
        self._numbers: dict[Hashable, int] = {}  # by the key of a constant or of an equation
        self._known: set[int] = set()
        self._costs: dict[int, int] = {}

    def constant(self, array: ArrayLike) -> int:
        """Adds a constant, unless an equal one is there; returns its value."""
        array = np.asarray(array)
        key = str(array.dtype), array.shape, array.tobytes()
        if key not in self._numbers:
            self._numbers[key] = len(self.avals)
            self.constants[len(self.avals)] = array
            self._known.add(len(self.avals))
            self.avals.append(jax.ShapeDtypeStruct(array.shape, array.dtype))
        return self._numbers[key]

    def add(self, program: ClosedJaxpr, inputs: Sequence[int]) -> list[int]:
        """Adds the equations of a program; returns the values of its outputs."""
        jaxpr = program.jaxpr
        shapes = [self.avals[value].shape for value in inputs]
        assert shapes == [aval.shape for aval in program.in_avals], (shapes, program.in_avals)
        values: dict[Var | Literal, int] = dict(zip(jaxpr.invars, inputs))
        values |= {var: self.constant(array) for var, array in zip(jaxpr.constvars, program.consts)}

        def read(atom: Var | Literal) -> int:
            if isinstance(atom, Literal):
                return self.constant(np.asarray(atom.val, atom.aval.dtype))  # pyright: ignore
            return values[atom]

        for equation in jaxpr.eqns:
            operands = [read(atom) for atom in equation.invars]
            values |= zip(equation.outvars, self._apply(equation, operands))
        return [read(atom) for atom in jaxpr.outvars]

    def _apply(self, equation: JaxprEqn, inputs: Sequence[int]) -> Sequence[int]:
        if (called := _called(equation)) is not None:
            return self.add(called, inputs)
        programs = itertools.chain(*bodies(equation).values())
        held = [(str(body.jaxpr), *map(id, body.consts)) for body in programs]
        hidden = BODIES.get(equation.primitive.name, ())
        params = {name: value for name, value in equation.params.items() if name not in hidden}
        key = equation.primitive, str(params), str(held), tuple(inputs)
        if key not in self._numbers:
            outputs = range(len(self.avals), len(self.avals) + len(equation.outvars))
            self._numbers[key] = outputs.start
            made = Equation(equation, tuple(inputs), outputs)
            self.equations |= dict.fromkeys(outputs, made)
            self.avals += [var.aval for var in equation.outvars]
            if all(value in self._known for value in inputs) and not equation.effects:
                self._known |= set(outputs)
        first = self._numbers[key]
        return range(first, first + len(equation.outvars))

    def cost(self, value: int) -> int:
        """Returns the bytes that it takes to ship a value that depends on no input."""
        if value not in self._costs:
            cost = _num_bytes(self.avals[value])
            if cost > SMALL and value in self.equations:
                inputs = self.equations[value].inputs
                cost = min(cost, AN_EQUATION + sum(self.cost(number) for number in inputs))
            self._costs[value] = cost
        return self._costs[value]

    def is_shipped(self, value: int) -> bool:
        """Returns whether a value is shipped as a constant, which no equation need make."""
        is_small = self.cost(value) == _num_bytes(self.avals[value])
        return value in self._known and is_small

    def needed(self, outputs: Sequence[int]) -> tuple[list[int], list[Equation]]:
        """Returns the constants and equations that the outputs depend on, in order."""
        shipped, equations, stack, visited = set(), {}, list(outputs), set()
        while stack:
            if (value := stack.pop()) in visited or value in self.inputs:
                continue
            visited.add(value)
            if self.is_shipped(value):
                shipped.add(value)
            else:
                equation = self.equations[value]
                equations[equation.outputs.start] = equation
                stack += equation.inputs
        return sorted(shipped), [equations[first] for first in sorted(equations)]

    def evaluate(
        self, wanted: Sequence[int], inputs: Mapping[int, np.ndarray] | None = None
    ) -> list[np.ndarray]:
        """Computes the arrays of values by JAX, in one program."""
        values = {**self.constants, **(inputs or {})}
        order, stack = {}, list(wanted)
        while stack:
            if (value := stack.pop()) not in values and value not in order:
                order[value] = self.equations[value]
                stack += order[value].inputs

        def compute(values: dict[int, Array]) -> list[Array]:
            values = dict(values)
            for value in sorted(order):
                if value not in values:
                    equation = order[value]
                    arrays = _bind(equation.source, [values[i] for i in equation.inputs])
                    values |= zip(equation.outputs, arrays)
            return [values[value] for value in wanted]

        used = set(wanted).union(*(equation.inputs for equation in order.values()))
        arguments = {value: values[value] for value in sorted(used & values.keys())}
        return [np.asarray(array) for array in jax.jit(compute)(arguments)]


class Pool:
    """The bytes of all constants. Arrays of equal bytes are stored once, in any shape."""

    def __init__(self) -> None:
        self.content = bytearray()
        self._offsets: dict[bytes, int] = {}

    def offset(self, array: np.ndarray) -> int:
        data = np.asarray(array, order="C").tobytes()
        if data not in self._offsets:
            self.content += bytes(-len(self.content) % 4)  # typed arrays begin at such addresses
            self._offsets[data] = len(self.content)
            self.content += data
        return self._offsets[data]


def as_json(graph: Graph, outputs: Sequence[int], pool: Pool) -> tuple[JsonObject, list[int]]:
    """Returns a graph as JSON, and the outputs by their numbers in it.

    Inputs are the first values, constants the next, and then come the outputs of equations.

    Raises:
        UsageError: an equation that the interpreter does not know; its text is a part of a
            sentence.
    """
    shipped, equations = graph.needed(outputs)
    order = [*graph.inputs, *shipped, *(value for made in equations for value in made.outputs)]
    numbers = {value: number for number, value in enumerate(order)}
    arrays = zip(shipped, graph.evaluate(shipped))
    content = {
        "inputs": [_type(graph.avals[value]) for value in graph.inputs],
        "constants": [[*_type(graph.avals[i]), pool.offset(array)] for i, array in arrays],
        "equations": [
            [
                made.source.primitive.name,
                _with_bodies(made.source, pool),
                [numbers[value] for value in made.inputs],
                [_type(graph.avals[value]) for value in made.outputs],
            ]
            for made in equations
        ],
    }
    return content, [numbers[value] for value in outputs]


def body_graph(body: ClosedJaxpr) -> tuple[Graph, list[int]]:
    """Returns a program that an equation holds as a graph of its own, with its outputs."""
    graph = Graph(body.in_avals)
    return graph, graph.add(body, graph.inputs)


def _with_bodies(equation: JaxprEqn, pool: Pool) -> JsonObject:
    params = parameters(equation)
    for name, programs in bodies(equation).items():
        params[name] = []
        for program in programs:
            content, outputs = as_json(*body_graph(program), pool)
            params[name].append(content | {"outputs": outputs})
    return params


def _called(equation: JaxprEqn) -> ClosedJaxpr | None:
    """Returns the program that an equation does nothing but call."""
    if equation.primitive.name in BODIES or equation.primitive.name.startswith("scatter"):
        return None
    for name in CALLED:
        program = equation.params.get(name)
        if program is not None:
            return program if isinstance(program, ClosedJaxpr) else ClosedJaxpr(program, ())
    return None


def _bind(equation: JaxprEqn, inputs: list[Array]) -> list[Array]:
    """Computes the outputs of an equation by JAX."""
    primitive = equation.primitive
    outputs = primitive.bind(*inputs, **primitive.get_bind_params(equation.params))
    return outputs if primitive.multiple_results else [outputs]


def _type(aval: Aval) -> list[Json]:
    return [dtype_name(aval.dtype), list(aval.shape)]


def _num_bytes(aval: Aval) -> int:
    return aval.size * getattr(aval.dtype, "itemsize", 4)

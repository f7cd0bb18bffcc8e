"""Each primitive that the page knows, in its forms, is as in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from flax_attn.errors import UsageError
from flax_attn.explore.graph import Graph, Pool, as_json
from flax_attn.explore.primitives import PARAMETERS
from tests.explore import living

RANDOM = np.random.default_rng(1)
X = RANDOM.normal(size=(3, 5)).astype(np.float32)
Y = RANDOM.normal(size=(3, 5)).astype(np.float32)
ROW = RANDOM.normal(size=(1, 5)).astype(np.float32)
WHOLE = RANDOM.integers(-7, 8, (3, 5)).astype(np.int32)
J = RANDOM.integers(1, 5, (3, 5)).astype(np.int32)
U = RANDOM.integers(0, 2**32, (3, 5), np.uint32)
B = RANDOM.integers(0, 2, (3, 5)).astype(bool)
ODD = np.array([[np.nan, np.inf, -np.inf, 0.5, -1.5], [2.5, -0.5, 1.5, 0, 3e9]], np.float32)
CUBE = RANDOM.normal(size=(2, 3, 4)).astype(np.float32)
TIES = RANDOM.integers(0, 3, (4, 7)).astype(np.float32)

words = str.split
UNARY = "abs asinh atan cbrt ceil cos erf erfc exp exp2 expm1 floor is_finite logistic neg round "
UNARY = words(UNARY + "sign sin sinh cosh square tan tanh stop_gradient")
POSITIVE = words("log log1p rsqrt sqrt acosh")
BOUNDED = words("acos asin atanh")
BINARY = words("add atan2 div eq ge gt le lt max min mul ne rem sub")
BITS = words("bitwise_and bitwise_or bitwise_xor")
RUNNING = words("cumsum cumprod cummax cummin cumlogsumexp")


def elements(x, y, i, j, u, b, odd):
    yield from (getattr(lax, name)(x) for name in UNARY)
    yield from (getattr(lax, name)(jnp.abs(x) + 1.01) for name in POSITIVE)
    yield from (getattr(lax, name)(jnp.tanh(x)) for name in BOUNDED)
    yield from (getattr(lax, name)(x, y) for name in BINARY)
    yield from (getattr(lax, name)(i, j) for name in BINARY if name != "atan2")
    yield from (getattr(lax, name)(i, j) for name in BITS)
    yield from (getattr(lax, name)(b, ~b) for name in BITS)
    yield from (lax.bitwise_not(i), lax.bitwise_not(b), lax.bitwise_not(u))
    yield from (lax.shift_left(i, j), lax.shift_right_arithmetic(i, j))
    yield from (lax.shift_right_logical(u, u % 32), u * u, u + u, u - u // 3, i * i * 123456789)
    yield from (lax.integer_pow(x, n) for n in (2, 3, 5, -1))
    yield from (lax.pow(jnp.abs(x), y), x * 2.0, 2.0 - x)
    yield from (lax.round(odd, lax.RoundingMethod.TO_NEAREST_EVEN), lax.round(odd, 0))
    yield from (lax.is_finite(odd), odd < 1, odd == odd)
    yield from (
        bound(*pair) for bound in (lax.max, lax.min) for pair in ((odd, x[:2]), (x[:2], odd))
    )
    yield from (x.astype(int), b.astype(jnp.float32), i.astype(bool), x.astype(bool))
    yield from (i.astype(jnp.uint8), i.astype(jnp.int16), u.astype(jnp.float32), x[:, :2] > 0)
    yield from (jnp.abs(x).astype(jnp.uint8), (x * 100).astype(jnp.int8), i.astype(jnp.uint32))
    yield from (lax.select(b, x, y), jnp.where(x[0, 0] > 0, x, y), lax.select_n(j % 3, x, y, x))
    yield from (lax.clamp(-0.5, x, 0.5), lax.clamp(x, y, x + 1), lax.clamp(-1, i, 2))
    yield jnp.where(b, x, -jnp.inf)  # an infinite number, which is no JSON
    yield jnp.where(b, x, jnp.nan)


def repeated(x, row):
    """Axes of size 1 that a primitive repeats itself."""
    for name in ("add", "mul", "sub", "div", "max", "lt"):
        primitive = getattr(lax, f"{name}_p")
        with jax.numpy_rank_promotion("allow"):
            yield primitive.bind(x, row)


def moves(x, i, cube):
    yield from (x.T, cube.transpose(2, 0, 1), cube.swapaxes(0, 1), x.reshape(5, 3))
    yield from (x[:, None], lax.squeeze(x[:, None], [1]), lax.expand_dims(x, [0, 3]))
    yield from (
        x[1:, ::2],
        x[::-1],
        lax.rev(cube, [0, 2]),
        lax.broadcast_in_dim(x, (2, 3, 5), (1, 2)),
    )
    yield from (jnp.broadcast_to(x[:1], (4, 5)), jnp.concatenate([x, x[:2]], 0))
    yield from (
        jnp.concatenate([cube, cube[..., :1]], 2),
        jnp.stack([x, x], 1),
        jnp.stack([x, x], -1),
    )
    yield from (*jnp.split(x, [1, 4], axis=1), *jnp.split(cube, 3, axis=1))
    yield from (lax.pad(x, 7.0, [(1, 2, 1), (-1, 1, 0)]), lax.pad(x, 0.0, [(2, -1, 0), (0, -2, 2)]))
    yield from (
        lax.iota(jnp.int32, 4) + i[0, 0],
        lax.broadcasted_iota(jnp.int32, (2, 3, 400), 1) + i[0, 0],
    )
    yield from (jnp.copy(x), lax.dynamic_slice(x, (i[0, 0], i[0, 1]), (2, 3)))
    yield lax.dynamic_update_slice(x, x[:2, :2], (i[0, 2], i[0, 3]))


def rows(x, i, b, cube, ties):
    for axes in ((0,), (1,), (0, 2), (0, 1, 2)):
        yield from (cube.sum(axes), cube.max(axes), cube.min(axes), jnp.prod(cube, axes))
    yield from (b.any(1), b.all(0), i.sum(1), i.max(0), i.min(), jnp.sum(b, 1))
    for axis in (0, 1):
        yield from (jnp.argmax(ties, axis), jnp.argmin(ties, axis))
        yield from (
            jnp.sort(x, axis),
            jnp.argsort(ties, axis),
            jnp.sort(ties, axis, descending=True),
        )
        yield from (f(x, axis, reverse) for reverse in (False, True) for f in runnings())
    yield lax.cumlogsumexp(jnp.where(jnp.arange(5) < 2, -jnp.inf, x), 1)  # as hidden keys
    yield jnp.argmax(jnp.where(jnp.arange(7) == 2, jnp.nan, ties), 1)
    yield from lax.sort((ties, x[0, 0] + ties[::-1], -ties), dimension=1, num_keys=2)
    yield from lax.sort((ties, jnp.arange(28).reshape(4, 7)), dimension=0, num_keys=1)
    yield from (*lax.top_k(ties, 3), *lax.top_k(x, 5))
    yield jnp.sort(i, 1)


def runnings():
    return [getattr(lax, name) for name in RUNNING]


def gathers(x, i, cube):
    index = jnp.abs(i[0, :2]) % 3
    yield from (x[index], x[:, index], x[index, index], cube[index % 2, :, index])
    yield jnp.take_along_axis(x, jnp.abs(i) % 5, axis=1)  # batched
    yield jnp.take_along_axis(cube, jnp.abs(i[:2, :3, None]) % 4, axis=2)
    yield jax.vmap(lambda row, at: row[at])(x, index[0] + jnp.arange(3) % 2)
    for mode in ("fill", "clip"):
        yield x.at[i[0]].get(mode=mode)
        yield x.at[i[0], i[1]].get(mode=mode)
        yield i.at[i[0]].get(mode=mode)
    yield (x > 0).at[i[0]].get(mode="fill", fill_value=False)
    yield x.at[i[0]].get(mode="fill", fill_value=7.0)


def products(x, y, i, cube):
    yield from (x @ y.T, x.T @ y, x @ x[0], x[0] @ x[0], i @ i.T)
    yield jnp.einsum("abc,adc->abd", cube, cube)
    yield jnp.einsum("abc,bdc->bad", cube, cube.swapaxes(0, 1))
    yield jnp.einsum("abc,dbc->ad", cube, cube)
    yield jnp.einsum("ab,cd->abcd", x, y)
    big = jnp.concatenate([x, y, x, y, x], 0)  # of more rows than the loop takes at once
    yield from (big @ big.T, big.T @ big)
    for taps, padding, stride, dilation in (
        (3, "SAME", 1, 1),
        (2, "VALID", 2, 1),
        (3, "SAME", 1, 2),
    ):
        yield lax.conv_general_dilated(
            cube,
            jnp.ones((taps, 4, 2)) + jnp.arange(2),
            (stride,),
            padding,
            rhs_dilation=(dilation,),
            dimension_numbers=("NWC", "WIO", "NWC"),
        )
    images, kernel = jnp.stack([cube, cube * 2]), cube[:, :2, None, :3] * jnp.ones((2, 2, 3, 3))
    yield lax.conv_general_dilated(images, kernel, (1, 1), "SAME")


def loops(x, i):
    yield from jax.tree.leaves(lax.scan(lambda c, row: (c * 0.5 + row, jnp.tanh(c)), x[0], x))
    yield from jax.tree.leaves(
        lax.scan(lambda c, row: ((c[0] + row, c[1] + 1), c[0] @ row), (x[0], 0), x, reverse=True)
    )
    yield from lax.while_loop(
        lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * x[0]), (i[0, 0], x[0])
    )
    yield lax.cond(x.sum() > 0, lambda a: a + 1, lambda a: a * x, x)
    yield lax.switch(i[0, 0], [lambda a: a, lambda a: -a, lambda a: a * a], x)
    yield lax.fori_loop(0, 4, lambda n, a: a + n * x, x)
    inner = lambda c, row: (lax.scan(lambda d, e: (d + e, d * e), c, row)[0], c)
    yield from jax.tree.leaves(lax.scan(inner, x[0, 0], x))


CASES = {
    "elements": (elements, (X, Y, WHOLE, J, U, B, ODD)),
    "repeated": (repeated, (X, ROW)),
    "moves": (moves, (X, WHOLE, CUBE)),
    "rows": (rows, (X, WHOLE, B, CUBE, TIES)),
    "gathers": (gathers, (X, WHOLE, CUBE)),
    "products": (products, (X, Y, WHOLE, CUBE)),
    "loops": (loops, (X, WHOLE)),
}


def graph_of(function, inputs):
    program = jax.make_jaxpr(lambda *arrays: list(function(*arrays)))(*inputs)
    graph = Graph(program.in_avals)
    outputs = graph.add(program, graph.inputs)
    return graph, outputs


@living.needs_node
def test_each_primitive_is_as_in_jax(tmp_path):
    covered = set()
    for name, (function, inputs) in CASES.items():
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            graph, outputs = graph_of(function, inputs)
        pool = Pool()
        content, _ = as_json(graph, outputs, pool)
        graphs = list(living.evaluated(graph, outputs, content, inputs))
        constants = living.packed(np.frombuffer(pool.content, np.uint8))
        content = {"graphs": graphs, "constants": constants}
        equations = living.in_node(tmp_path, content)["equations"]
        far = [(primitive, apart) for primitive, apart in equations if not apart < 1e-4]
        assert not far, name
        covered |= {primitive for primitive, _ in equations}
    assert set(PARAMETERS) - covered == set()


def test_calls_are_written_out_and_what_is_equal_is_one():
    double = jax.jit(lambda x: jax.nn.relu(x) * 2)

    @jax.custom_vjp
    def own(x):
        return double(x) + double(x)

    own.defvjp(lambda x: (own(x), None), lambda _, g: (g,))
    graph, outputs = graph_of(lambda x: [own(x), jax.checkpoint(double)(x)], [X])
    content, _ = as_json(graph, outputs, Pool())
    assert [name for name, *_ in content["equations"]] == ["max", "mul", "add"]


def test_what_parameters_alone_decide_is_computed_before():
    weights = jnp.asarray(CUBE[0])
    function = lambda x: [x[:, :4] @ (weights.T @ weights), jnp.sin(x) * 0 + x]
    graph, outputs = graph_of(function, [X])
    pool = Pool()
    content, _ = as_json(graph, outputs, pool)
    assert [name for name, *_ in content["equations"]].count("dot_general") == 1
    stored = np.frombuffer(pool.content, np.float32)
    assert len(stored) == 4 * 4 + 1
    np.testing.assert_allclose(stored[:16].reshape(4, 4), CUBE[0].T @ CUBE[0], rtol=1e-5)


def test_an_array_is_stored_once_whatever_its_shape_and_a_large_repetition_not_at_all():
    pool = Pool()
    bias = jnp.asarray(RANDOM.normal(size=600).astype(np.float32))
    function = lambda x: [
        x[0, 0] + bias[None],
        x[0, 1] * bias[:, None],
        x[0, 2] + jnp.zeros((500, 600)),
    ]
    content, _ = as_json(*graph_of(function, [X]), pool)
    assert len(pool.content) < 2500
    assert "broadcast_in_dim" in [name for name, *_ in content["equations"]]


def test_arrays_begin_where_typed_arrays_may():
    pool = Pool()
    arrays = [B[:, :1], X, B[0], WHOLE]
    offsets = [pool.offset(array) for array in arrays]
    assert [offset % 4 for offset in offsets] == [0] * 4
    for array, offset in zip(arrays, offsets):
        stored = np.frombuffer(pool.content, array.dtype, array.size, offset)
        np.testing.assert_array_equal(stored, array.ravel())


def convolved(x, kernel, **options):
    kernel = jnp.ones(kernel)
    return [lax.conv_general_dilated(x[None], kernel, (1,), [(0, 0)], **options)]


def test_what_the_page_does_not_know_is_told_by_name():
    for function, words in (
        (lambda x: [lax.lgamma(x)], "the primitive 'lgamma'"),
        (lambda x: [x.astype(jnp.bfloat16)], "arrays of bfloat16"),
        (lambda x: [x.at[0].set(1.0)], "the primitive 'scatter'"),
        (lambda x: convolved(x, (2, 3, 3), lhs_dilation=(2,)), "with groups, or transposed"),
        (lambda x: convolved(x, (3, 1, 3), feature_group_count=3), "with groups, or transposed"),
        (lambda x: list(lax.scan(lambda c, y: (c, lax.lgamma(y)), x[0], x)), "'lgamma'"),
    ):
        with pytest.raises(UsageError, match=words):
            as_json(*graph_of(function, [X]), Pool())


def test_what_is_unknown_and_unused_or_of_parameters_alone_does_no_harm():
    function = lambda x: [x + lax.lgamma(jnp.arange(5.0) + 1)[None], (lax.lgamma(x), x)[1]]
    content, _ = as_json(*graph_of(function, [X]), Pool())
    assert [name for name, *_ in content["equations"]] == ["add"]


def test_constants_of_equal_bytes_and_other_shapes_are_two():
    graph = Graph([])
    shapes = [(4,), (2, 2), (4,)]
    one, other, same = (graph.constant(np.zeros(shape, np.float32)) for shape in shapes)
    assert one == same != other
    assert [graph.avals[value].shape for value in (one, other)] == shapes[:2]

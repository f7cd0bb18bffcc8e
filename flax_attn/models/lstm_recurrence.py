"""The recurrence of an LSTM and its derivatives, with as few operations as possible in the loops.

    i, f, g, o = x_t + h_{t-1} U
    m_t = f m_{t-1} + i g
    h_t = o tanh(m_t)

with the logistic function of i, f and o, and tanh of g. `x` holds the products with the inputs, and
the biases. The derivatives run from the last step to the first. `dy_t` is the gradient of h_t from
outside the recurrence:

    dh_t = dy_t + dz_{t+1} U^T
    dm_t = f_{t+1} dm_{t+1} + o (1 - tanh(m_t)^2) dh_t
    dz_t = [g i (1 - i) dm_t, m_{t-1} f (1 - f) dm_t, i (1 - g^2) dm_t, tanh(m_t) o (1 - o) dh_t]
    dU = sum_t h_{t-1}^T dz_t

After the last step dz is 0, f is 1, and dm is the gradient of the last memory; the gradient of the
last h is added to dy. Before the first step, `dz_1 U^T` is the gradient of h and `f_1 dm_1` that of
m. Everything runs along the first axis, of one step at least.

Source: Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000.

The forward loop stores gates and memories alone. The slopes, which multiply dm and dh, are computed
from them for all steps at once, before the backward loop. The time of a narrow LSTM's step is that
of starting its operations. Here they are eight forward and seven back without lengths (jax 0.10).
The equations differentiated as they stand take twenty-five and nine. With more than eight, XLA on
CPU hands them to a scheduler, which costs more again. There is no forward mode.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from flax_attn.attention.arrays import with_rank

State = tuple[Array, Array]  # h and m


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def recur(
    reverse: bool,
    kernel: Float[Array, "e g"],
    x: Float[Array, "t *b g"],
    state: State,
    lengths: Int[Array, "*b"] | None,
) -> tuple[Float[Array, "t *b e"], State]:
    """Hidden states and the last state.

    Args:
        reverse: whether the steps go from the end to the start.
        kernel, x: U and `x` above, the gates side by side, `g = 4 e` wide.
        state: h and m before the first step, `(*b, e)` each.
        lengths: the number of steps of each row. After them, hidden states are zeros and the state
            stays as it is. None for all steps.
    """

    def step(state: State, terms: tuple[Array, Array | None]) -> tuple[State, Array]:
        state, y, _ = _step(kernel, state, *terms)
        return state, y

    last, y = jax.lax.scan(step, state, (x, _going(x, lengths)), reverse=reverse)
    return y, last


def _step(kernel: Array, state: State, x: Array, going: Array | None) -> tuple[State, Array, Array]:
    """The next state, the output, and the gates."""
    h, m = state
    gates = _gates(x + jnp.einsum("...e,eg->...g", h, kernel))
    if going is not None:  # after its end, a row forgets nothing, adds nothing and outputs nothing
        gates = jnp.where(going[..., None], gates, _column([0.0, 1.0, 0.0, 0.0], gates))
    i, f, g, o = _parts(gates)
    m = f * m + i * g
    y = o * jnp.tanh(m)
    h = y if going is None else jnp.where(going, y, h)
    return (h, m), y, gates


def _forward(
    reverse: bool, kernel: Array, x: Array, state: State, lengths: Array | None
) -> tuple[tuple[Array, State], tuple]:
    def step(state: State, terms: tuple[Array, Array | None]) -> tuple[State, tuple[Array, Array]]:
        state, _, gates = _step(kernel, state, *terms)
        return state, (state[1], gates)

    going = _going(x, lengths)
    last, (m, gates) = jax.lax.scan(step, state, (x, going), reverse=reverse)
    y = gates[..., 3, :] * jnp.tanh(m)
    return (y, last), (kernel, state, m, gates, going)


def _backward(reverse: bool, residuals: tuple, cotangents: tuple[Array, State]) -> tuple:
    kernel, state, m, gates, going = residuals
    dy, (dh_last, dm) = cotangents
    i, f, g, o = _parts(gates)
    tanh_m = jnp.tanh(m)
    m_before = _before(state[1], m, reverse)
    slopes = [g * i * (1 - i), m_before * f * (1 - f), i * (1 - g * g), tanh_m * o * (1 - o)]
    slopes = jnp.stack(slopes, axis=-2)
    f_after = _before(jnp.ones_like(f[0]), f, not reverse)
    if going is None:
        h, dy, passed = o * tanh_m, dy.at[0 if reverse else -1].add(dh_last), None
    else:
        # In reverse a row begins after its end, where h is still that of the first state.
        h, dy = jnp.where(going, o * tanh_m, state[0][None]), jnp.where(going, dy, 0)
        # The steps after the end pass the gradient of the last h on, to where the row ended.
        passed = dh_last

    def step(carry: tuple, terms: tuple) -> tuple[tuple, Array]:
        (dz, dm, passed), (dy, slope, slopes, f_after, going) = carry, terms
        dh = dy + jnp.einsum("...g,eg->...e", dz, kernel)
        if going is not None:
            dh += passed
            passed = jnp.where(going, 0, dh)
        dm = f_after * dm + slope * dh
        dz = (jnp.stack([dm, dm, dm, dh], axis=-2) * slopes).reshape(dz.shape)
        return (dz, dm, passed), dz

    start = jnp.zeros((*m.shape[1:-1], kernel.shape[1]), gates.dtype), dm, passed
    terms = dy, o * (1 - tanh_m * tanh_m), slopes, f_after, going
    (dz_first, dm, passed), dz = jax.lax.scan(step, start, terms, reverse=not reverse)
    dh = jnp.einsum("...g,eg->...e", dz_first, kernel)
    dh = dh if passed is None else dh + passed
    leading = list(range(dz.ndim - 1))
    dkernel = jnp.tensordot(_before(state[0], h, reverse), dz, (leading, leading))
    return dkernel, dz, (dh, f[-1 if reverse else 0] * dm), None


recur.defvjp(_forward, _backward)


def _gates(z: Float[Array, "*b g"]) -> Float[Array, "*b 4 e"]:
    """i, f, g and o in one pass of tanh: the logistic function of z is `(1 + tanh(z / 2)) / 2`."""
    z = z.reshape(*z.shape[:-1], 4, -1)
    scale = _column([0.5, 0.5, 1.0, 0.5], z)
    return scale * jnp.tanh(scale * z) + (1 - scale)


def _column(of_gates: list[float], gates: Float[Array, "*b 4 e"]) -> Float[Array, "... 4 1"]:
    """One number for each gate, with the rank of the gates."""
    return with_rank(jnp.array(of_gates, gates.dtype).reshape(4, 1), gates.ndim)


def _parts(gates: Float[Array, "*b 4 e"]) -> list[Float[Array, "*b e"]]:
    return [gates[..., number, :] for number in range(4)]


def _going(
    x: Float[Array, "t *b g"], lengths: Int[Array, "*b"] | None
) -> Bool[Array, "t *b 1"] | None:
    """Whether each row goes on at each step; None where all rows do."""
    if lengths is None:
        return None
    steps = jnp.arange(x.shape[0]).reshape(-1, *(1,) * lengths.ndim)
    return (steps < lengths[None])[..., None]


def _before(first: Array, rest: Array, reverse: bool) -> Array:
    """The value before each step, along the first axis: `first`, then those of `rest`.

    With `reverse` the steps go from the end, so `first` is the last entry.
    """
    if reverse:
        return jnp.concatenate([rest[1:], first[None]])
    return jnp.concatenate([first[None], rest[:-1]])

"""The recurrence of an LSTM and its derivatives, with as little as can be within the two loops.

    i, f, g, o = x_t + h_{t-1} U        m_t = i g + f m_{t-1}        h_t = o tanh(m_t)

where the logistic function is taken of i, f and o and tanh of g, and `x` holds the products with the inputs and the biases.
Back from the last step, with the gradient dh of what is made of h_t, and dm of what is made of m_t:

    dh_t = dh + dz_{t+1} U^T            dm_t = f_{t+1} dm_{t+1} + o (1 - tanh(m_t)^2) dh_t
    dz_t = [g i (1 - i) dm_t, m_{t-1} f (1 - f) dm_t, i (1 - g^2) dm_t, tanh(m_t) o (1 - o) dh_t]        dU = sum_t h_{t-1}^T dz_t

Source: Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000. What is multiplied by dm and dh, the slopes, is
known before the loop goes back, and so is h from the gates and m. A step of a narrow LSTM costs what its operations cost to
start, so each loop has six or seven of them: XLA on CPU runs no more than eight in turn, and more by a scheduler that costs more.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

State = tuple[Array, Array]  # hidden, memory
Residuals = tuple[Array, State, Array, Array, Array | None]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def recur(
    reverse: bool, kernel: Float[Array, "e g"], inputs: Float[Array, "t *b g"], state: State, lengths: Int[Array, "*b"] | None
) -> tuple[Float[Array, "t *b e"], State]:
    """Hidden states, zeros where a row has ended, and the last state; the gates side by side are `g = 4 e` wide."""
    return _forward(reverse, kernel, inputs, state, lengths)[0]


def _forward(
    reverse: bool, kernel: Array, inputs: Array, state: State, lengths: Array | None
) -> tuple[tuple[Array, State], Residuals]:
    going = None if lengths is None else _going(inputs, lengths)

    def body(state: State, terms: tuple[Array, Array | None]) -> tuple[State, tuple[Array, Array]]:
        (hidden, memory), (step_inputs, step_going) = state, terms
        gates = _gates(step_inputs + jnp.einsum("...e,eg->...g", hidden, kernel))
        if step_going is not None:  # past its end a row forgets nothing, takes nothing and shows nothing
            gates = jnp.where(step_going[..., None], gates, _along(jnp.array([0, 1, 0, 0], gates.dtype), gates))
        i, f, g, o = _parts(gates)
        memory = f * memory + i * g
        new = o * jnp.tanh(memory)
        return (new if step_going is None else jnp.where(step_going, new, hidden), memory), (memory, gates)

    last, (memories, gates) = jax.lax.scan(body, state, (inputs, going), reverse=reverse)
    return (gates[..., 3, :] * jnp.tanh(memories), last), (kernel, state, memories, gates, going)


def _backward(reverse: bool, residuals: Residuals, cotangents: tuple[Array, State]) -> tuple:
    kernel, state, memories, gates, going = residuals
    hidden_cotangents, (passed, memory_cotangent) = cotangents
    (i, f, g, o), tanh = _parts(gates), jnp.tanh(memories)
    hidden = o * tanh if going is None else jnp.where(going, o * tanh, state[0][None])  # or where none is yet, going back
    hidden_before, memory_before = (_shifted(first, rest, reverse) for first, rest in zip(state, (hidden, memories)))
    slopes = jnp.stack([g * i * (1 - i), memory_before * f * (1 - f), i * (1 - g * g), tanh * o * (1 - o)], axis=-2)
    f_after = _shifted(jnp.ones_like(f[0]), f, not reverse)

    def body(carry: tuple, terms: tuple) -> tuple[tuple, Array]:
        sums, memory, passed = carry
        hidden_cotangent, slope, f_after, slopes, step_going = terms
        hidden = hidden_cotangent + jnp.einsum("...g,eg->...e", sums, kernel)
        if step_going is not None:  # what comes to the state of a row that has ended goes to the state where it ended
            hidden += passed
            passed = jnp.where(step_going, 0, hidden)
        memory = f_after * memory + slope * hidden
        sums = (jnp.stack([memory, memory, memory, hidden], axis=-2) * slopes).reshape(sums.shape)
        return (sums, memory, passed), sums

    if going is None:
        hidden_cotangents, passed = hidden_cotangents.at[0 if reverse else -1].add(passed), None
    start = (jnp.zeros((*memories.shape[1:-1], kernel.shape[1]), gates.dtype), memory_cotangent, passed)
    terms = (hidden_cotangents, o * (1 - tanh * tanh), f_after, slopes, going)
    (first, memory, passed), sums = jax.lax.scan(body, start, terms, reverse=not reverse)
    first = jnp.einsum("...g,eg->...e", first, kernel)
    state = (first if passed is None else first + passed, f[-1 if reverse else 0] * memory)
    leading = list(range(sums.ndim - 1))
    return jnp.tensordot(hidden_before, sums, (leading, leading)), sums, state, None


recur.defvjp(_forward, _backward)


def _gates(sums: Float[Array, "*b g"]) -> Float[Array, "*b 4 e"]:
    """i, f, g, o, in one pass of tanh for all: the logistic function of x is `1/2 + tanh(x/2) / 2`."""
    rows = sums.reshape(*sums.shape[:-1], 4, -1)
    scale = _along(jnp.array([0.5, 0.5, 1, 0.5], rows.dtype), rows)
    return scale * jnp.tanh(scale * rows) + (1 - scale)


def _along(of_gates: Float[Array, "4"], gates: Float[Array, "*b 4 e"]) -> Float[Array, "... 4 1"]:
    return of_gates.reshape((1,) * (gates.ndim - 2) + (4, 1))


def _parts(gates: Float[Array, "*b 4 e"]) -> list[Float[Array, "*b e"]]:
    return [gates[..., part, :] for part in range(4)]


def _going(inputs: Float[Array, "t *b g"], lengths: Int[Array, "*b"]) -> Bool[Array, "t *b 1"]:
    return (jnp.arange(len(inputs)).reshape((-1,) + (1,) * lengths.ndim) < lengths[None])[..., None]


def _shifted(first: Array, rest: Array, reverse: bool) -> Array:
    """What was there a step before: `first`, then `rest` but its last; or where the steps go backwards, `rest` but its first, then `first`."""
    return jnp.concatenate([rest[1:], first[None]] if reverse else [first[None], rest[:-1]])

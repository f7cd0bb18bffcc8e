"""Layers of Flax as one program each: op by op they would be dozens, and to compile them is most of the work here."""

import jax


def init(layer, *args, **options):
    return jax.jit(lambda: layer.init(jax.random.key(2), *args, **options))()


def apply(layer, variables, *args, **options):
    return jax.jit(lambda variables: layer.apply(variables, *args, **options))(variables)

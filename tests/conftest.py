"""Strict everywhere: shapes in annotations are checked as the code runs, and no array is broadcast across ranks unasked."""

import jax
from jaxtyping import install_import_hook

install_import_hook("flax_attn", "beartype.beartype")
jax.config.update("jax_numpy_rank_promotion", "raise")

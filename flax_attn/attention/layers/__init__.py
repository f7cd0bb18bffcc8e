"""Flax layers around the functions of `flax_attn.attention`, which names them all."""

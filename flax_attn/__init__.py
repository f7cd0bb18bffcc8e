"""Attention in Flax: a library of attention mechanisms, models that use them, and a program that trains them."""

__version__ = "0.1.0"

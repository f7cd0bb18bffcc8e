"""Side-by-side measurements.

Pairs alternate in one process, so that a noisy machine disturbs both alike.
"""

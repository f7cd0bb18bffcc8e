"""Data sets, as arrays: generated ones in pure JAX, stored ones read from files."""

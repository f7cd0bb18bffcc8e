"""Computations in the forms that XLA on CPUs needs: the plain ones are slower there.

A file has one form, and its docstring says how many times as long the plain one takes, on two cores
with AVX-512 and in the setting where the form is used. A form that is not at least 1.15 times as
fast as the plain one on jax 0.12 has no file here.
"""

"""Ways to compute a call beside the formula.

A form is a file with `why_not(call)` and `attend(call)`.
`kernels` holds what the kernels of GPUs and TPUs share.
"""

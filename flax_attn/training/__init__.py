"""Training: state, steps, epochs, metrics, checkpoints.

Knows functions and pytrees, no model and no data set.
"""

"""Predictions for a user's own files: reading them, drawing and writing what a run says of them.

Nothing is printed.
"""

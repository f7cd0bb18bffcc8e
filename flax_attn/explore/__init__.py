"""Trained runs to try out in a browser: their forward pass as JSON, which runs in a page."""

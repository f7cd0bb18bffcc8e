"""A trained run in a page: its forward pass as JSON, and a local server that answers."""

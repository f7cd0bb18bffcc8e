"""The format of a run directory, written and read: config, metrics, results, checkpoints."""

"""The page of reports and of the explorer: how a run becomes data, and modules that show it."""

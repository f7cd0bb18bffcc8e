"""Figures, tables and comparisons, drawn from run directories alone."""

"""Measured comparisons of two forms of one quantity."""

"""Measuring: bits over a data set, the quality of what is written, several methods side by side."""

"""Evaluation: bits over a data set, measures of samples, benchmarks, and comparisons of methods."""

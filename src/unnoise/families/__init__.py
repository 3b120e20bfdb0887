"""Families of methods that bring a process, an objective and a sampler."""

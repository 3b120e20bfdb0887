"""Systems with a process, an objective and a sampler of their own, each in one place."""

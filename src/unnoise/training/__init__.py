"""Training: options, one run step by step, its optimiser and its checkpoints."""

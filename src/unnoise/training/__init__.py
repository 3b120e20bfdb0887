"""Training: options, one run step by step, its optimizer and its checkpoints."""

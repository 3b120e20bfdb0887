"""The LM Evaluation Harness."""

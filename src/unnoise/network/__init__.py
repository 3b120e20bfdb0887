"""Networks, and how their outputs become predictions."""

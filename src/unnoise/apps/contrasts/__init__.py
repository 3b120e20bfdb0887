"""`unnoise contrast`: two forms of one quantity, measured next to each other."""

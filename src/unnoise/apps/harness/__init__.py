"""`unnoise harness`: tasks of lm-evaluation-harness, answered with bounds."""

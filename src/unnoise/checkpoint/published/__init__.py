"""Models that were trained elsewhere: one file a format."""

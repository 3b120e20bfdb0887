"""Words for `[WORD]` marks."""

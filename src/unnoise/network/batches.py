"""How many texts go through a network together."""

import torch

TOKENS = 2048
NUMBERS = 2**26  # of predictions that are held at once


def rows_at_once(tokens: int, most: int, device: torch.device, vocab: int = 1) -> int:
    """How many texts to put through a network in one call that reads so many tokens of each, and predicts at them all one of
    `vocab`.

    On a CPU 2,048 tokens at once are as quick as more are, and often quicker, as they stay in its caches; elsewhere `most`. It
    does not depend on how many threads or processes there are, so that any number of them computes the same bits.
    """
    return max(1, min(most, TOKENS // tokens, NUMBERS // (tokens * vocab))) if device.type == "cpu" else most

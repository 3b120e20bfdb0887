"""Nearest-neighbour noise for an alphabet: a symbol changes to a neighbour on the keyboard (D3PM, arXiv:2107.03006)."""

import torch
from torch import Tensor

from unnoise.data import Codec
from unnoise.process import Markov
from unnoise.process.markov import mutual_information_schedule
from unnoise.schedule import Linear

ROWS = ("`1234567890-=", "qwertyuiop[]\\", "asdfghjkl;'", "zxcvbnm,./", " ")
SHIFTED = ("~!@#$%^&*()_+", "QWERTYUIOP{}|", 'ASDFGHJKL:"', "ZXCVBNM<>?")
OFFSETS = (0.0, 1.5, 1.75, 2.25, 6.25)  # of the rows of a US keyboard, in key widths
SHIFT = 0.9  # distance between the two symbols of a key
NEIGHBOURS = 4
MOST_SYMBOLS = 128
CELLS = 16  # of the schedule's table


def symbol_points(symbols: list[str]) -> Tensor:
    """Return the positions of symbols on a keyboard, [K, 3], or in a row if some are not keys, [K, 1]."""
    keys = {
        key: (offset + column, float(row), shift)
        for rows, shift in ((ROWS, 0.0), (SHIFTED, SHIFT))
        for row, (line, offset) in enumerate(zip(rows, OFFSETS, strict=False))
        for column, key in enumerate(line)
    }
    if all(symbol in keys for symbol in symbols):
        return torch.tensor([keys[symbol] for symbol in symbols])
    return torch.arange(len(symbols), dtype=torch.float64)[:, None]


def nearest_symbols(codec: Codec) -> Markov:
    """Return noise between neighbouring symbols with D3PM's schedule, where I(x_t; x_0) decreases linearly in t."""
    if codec.vocab > MOST_SYMBOLS:
        raise ValueError(
            f"nearest-neighbour noise is for alphabets of at most {MOST_SYMBOLS} symbols such as text8's, found {codec.vocab}"
        )
    points = symbol_points([codec.show(token) for token in range(codec.vocab)])
    chain = Markov.nearest(points, Linear(), min(NEIGHBOURS, codec.vocab - 1))
    unigram = torch.full((codec.vocab,), 1 / codec.vocab, dtype=torch.float64)
    return Markov(chain.generator, mutual_information_schedule(chain, unigram, CELLS))

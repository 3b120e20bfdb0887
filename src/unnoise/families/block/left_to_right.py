"""The probability of tokens under block diffusion when each block is revealed from left to right.

A denoiser of block diffusion answers for any order of reveals within a block (ARDM, arXiv:2110.02037). One order is the text's
own, log p(x) = Σ_i log μ(x^i | x^{<k}, the block's tokens before i, masks behind), k the block of i, as an autoregressive model
has it, so that what follows a place says how likely a word is there.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from unnoise.families.block.denoiser import BlockDenoiser, BlockParameterization
from unnoise.families.block.process import Blocks
from unnoise.network.base import Cache
from unnoise.prediction import MeanPrediction
from unnoise.process.base import gather
from unnoise.process.state import PAD


def left_to_right(denoiser: BlockDenoiser, process: Blocks, x: Tensor, start: int) -> Tensor:
    """log μ of the tokens from `start` on, each given all before it: x [B, L] → [B, L − start], 0 where x is −1.

    All rows have the same tokens before `start`. Rows of unequal length end with −1.
    """
    first = start // process.block * process.block
    there = x != PAD
    x = pad(torch.where(there, x, process.mask), (0, -x.shape[1] % process.block), value=process.mask)
    if isinstance(denoiser, BlockParameterization) and denoiser.has_cache:
        found = _with_cache(denoiser, process, x, first)
    else:
        found = _at_once(denoiser, process, x, first)
    return torch.where(there, found[:, : there.shape[1]], 0)[:, start:]


def _at_once(denoiser: BlockDenoiser, process: Blocks, x: Tensor, first: int) -> Tensor:
    """All blocks of all rows in one call for each place within a block: x [B, L] → [B, L], from `first` on."""
    found = torch.zeros(x.shape, device=x.device)
    column = torch.arange(x.shape[1], device=x.device)
    for j in range(process.block):
        x_t = x.masked_fill(column % process.block >= j, process.mask)
        where = ((column % process.block == j) & (column >= first)).expand(x.shape)
        t = torch.full(x.shape, 1 - j / process.block, device=x.device)
        log_probs = denoiser.blocks(x_t, x, t, where, process.block).log_probs
        found[where] = _chosen(log_probs, x[where], process.mask)
    return found


def _with_cache(denoiser: BlockParameterization, process: Blocks, x: Tensor, first: int) -> Tensor:
    """The same, a block after another; what all rows share is read once."""
    found, cache = torch.zeros(x.shape, device=x.device), Cache()
    for begin in range(0, x.shape[1], process.block):
        here = slice(begin, begin + process.block)
        if begin == first:
            cache.keep(torch.zeros(len(x), dtype=torch.long, device=x.device))
        if begin < first:
            denoiser.read(x[:1, here], cache)
            continue
        within = denoiser.within(cache)
        for j in range(process.block):
            x_t = x[:, here].clone()
            x_t[:, j:] = process.mask
            where = torch.zeros_like(x_t, dtype=torch.bool)
            where[:, j] = True
            t = torch.full((len(x),), 1 - j / process.block, device=x.device)
            prediction = within(x_t, t, where)
            assert isinstance(prediction, MeanPrediction)
            found[:, begin + j] = _chosen(prediction.log_probs, x[:, begin + j], process.mask)
        denoiser.read(x[:, here], cache)
    return found


def _chosen(log_probs: Tensor, tokens: Tensor, mask: int) -> Tensor:
    return gather(log_probs, torch.where(tokens == mask, 0, tokens)).to(torch.get_default_dtype())

"""Log-probabilities of tokens under block diffusion when each block is revealed from left to right.

Any order of reveals within a block gives the same law (ARDM, arXiv:2110.02037). From left to right, with k the block of i,

    log p(x) = Σ_i log μ(x^i | x^{<k}, the block's tokens before i, masks from i on),

an autoregressive factorisation, so the tokens after a place score the word in it.
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
    """Return log μ of the tokens from `start` on, each given all tokens before it: x [B, L] → [B, L − start].

    All rows share the tokens before `start`. Shorter rows are padded with −1, where the result is 0.
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
    """Evaluate all blocks of all rows in one call for each position within a block: x [B, L] → [B, L], from `first` on."""
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
    """Evaluate block after block with a key/value cache; the blocks that all rows share are evaluated once."""
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

"""The importance-weighted bound of block diffusion, with separate orders for each block."""

import torch
from torch import Tensor
from torch.nn.functional import pad

from unnoise.denoiser import Denoiser
from unnoise.families.block.denoiser import block_denoiser
from unnoise.families.block.objective import BlockElbo, block_ranks
from unnoise.families.block.process import Blocks
from unnoise.objective.importance_weighted import ImportanceWeighted
from unnoise.process.base import gather
from unnoise.rng import Generator


class BlockImportanceWeighted(ImportanceWeighted):
    """Σ_blocks −log (1/M) Σ_m Π_k μ(x^{o_k} | x^{o_{<k}} of its block, the blocks before it): [B].

    Separate orders per block are tighter than M orders of the whole sequence. All blocks are evaluated at once, so an order
    needs as many network calls as a block has tokens. With blocks of one token the bound is −log p.
    """

    def __init__(self, process: Blocks, orders: int = 8):
        super().__init__(process, orders)
        self.elbo, self.block = BlockElbo(process), process.block

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        if x.shape[1] <= self.block:
            return super().forward(denoiser, x, generator)
        x, there = self.elbo.filled(x)
        size = self.block
        blocks = pad(there, (0, -there.shape[1] % size)).unflatten(1, (-1, size))
        ranks = [block_ranks(blocks, there, generator).masked_fill(~blocks, -1).flatten(1) for _ in range(self.orders)]
        return self.at(denoiser, x, torch.stack(ranks)[:, :, : x.shape[1]])

    def log_weight(self, denoiser: Denoiser, x: Tensor, rank: Tensor) -> Tensor:
        """Compute log w of one order of each block: x, rank [B, L], −1 outside the sequence → [B, blocks]."""
        size = self.block
        if x.shape[1] <= size:
            return super().log_weight(denoiser, x, rank)
        network = block_denoiser(denoiser, "block diffusion")
        total = x.new_zeros(len(x), -(-x.shape[1] // size), dtype=torch.float64)
        number = (torch.arange(x.shape[1], device=x.device) // size).expand(x.shape)
        for k in range(size):
            where = rank == k
            x_t = x.masked_fill(rank >= k, self.process.mask)
            t = torch.full(x.shape, 1 - k / size, device=x.device)
            prediction = network.blocks(x_t, x, t, where, size).selected(self.process, tuple(x.shape), where, int(where.sum()))
            nats = gather(prediction.log_probs, x[where]).double()
            total.index_put_((where.nonzero()[:, 0], number[where]), nats, accumulate=True)
        return total

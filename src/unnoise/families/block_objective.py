"""The bound of block diffusion, its importance-weighted form, and a cross-entropy that trains faster.

−log p(x) ≤ Σ_k (the masked bound of block k given x^{<k}). For a denoiser that ignores t the masked bound of m tokens is
m·E_{j ~ U{1…m}} E_{j random positions masked} (1/j) Σ_masked −log μ (ARDM, arXiv:2110.02037), so the number of masks of each
block is sampled instead of a time. With blocks of one token all are masked, and the bound is −log p.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from unnoise.denoiser import Denoiser, predict
from unnoise.families.any_order import choices
from unnoise.families.block import BlockParameterization, Blocks, block_denoiser
from unnoise.objective.elbo import Elbo, ImportanceWeighted
from unnoise.objective.losses import CrossEntropy
from unnoise.objective.objective_base import DenoisingObjective, Objective, sum_rows
from unnoise.objective.times import stratified
from unnoise.process.process_base import gather
from unnoise.process.state import PAD
from unnoise.rng import Generator, uniform

FRAGMENT = 1 / 8  # smallest share of a sequence used as one block
TURN = 0.6180339887498949  # golden ratio: the numbers u + k·TURN mod 1 are evenly spread


class BlockElbo(Objective):
    """Σ_k m/j·Σ over j masked positions of block k of −log μ(x^i | x_t^k, x^{<k}), m its tokens, j uniform in 1…m: [B].

    Sequences of at most one block use `Elbo`. Sequences of unequal length end with EOS, which fills their last block, and are
    padded with −1, which does not contribute to the loss.
    """

    def __init__(self, process: Blocks):
        super().__init__()
        self.process, self.block = process, process.block
        self.one_block: DenoisingObjective = Elbo(process)

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        if x.shape[1] <= self.block:
            return self.one_block(denoiser, x, generator)
        x, there = self.filled(x)
        hidden, share = self.hide(there, generator)
        weight = torch.where(hidden, 1 / share.clamp_min(1e-9), 0)
        return self.at(denoiser, x, hidden, share, weight)

    def drawn(self, denoiser: Denoiser, x: Tensor, v: Tensor, generator: Generator = None) -> Tensor:
        if x.shape[1] <= self.block:
            return self.one_block.drawn(denoiser, x, v, generator)
        x, there = self.filled(x)
        hidden, share = self.hide_at(there, v, generator)
        return self.at(denoiser, x, hidden, share, torch.where(hidden, 1 / share.clamp_min(1e-9), 0))

    def choice(self, denoiser: Denoiser, x: Tensor, number: Tensor) -> Tensor:
        """Compute the terms of one choice of masks in every block, the bits of number [B] ≥ 1: [B].

        Over 1…2^block − 1 the terms sum to the bound. For sequences of more than one block.
        """
        x, there = self.filled(x)
        blocks = pad(there, (0, -there.shape[1] % self.block)).unflatten(1, (-1, self.block))  # [B, N, block]
        tokens = blocks.sum(2)
        bits = (number[:, None] >> torch.arange(self.block, device=x.device)) & 1 == 1
        hidden = bits[:, None] & (number[:, None] < 2**tokens)[:, :, None]  # padding follows the tokens of a block
        count = hidden.sum(2)
        share = count / tokens.clamp_min(1)
        weight = 1 / (count.clamp_min(1) * choices(tokens, count))
        share, weight = (each[:, :, None].expand(hidden.shape).flatten(1)[:, : x.shape[1]] for each in (share, weight))
        hidden = hidden.flatten(1)[:, : x.shape[1]]
        return self.at(denoiser, x, hidden, share, torch.where(hidden, weight, 0))

    def filled(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Fill the last blocks with EOS and return the sequences and their positions: [B, L] → [B, L'] long and bool.

        Sequences without EOS do not change; their last block may have fewer tokens.
        """
        end = PAD if self.process.end is None else self.process.end  # no sequence ends with padding
        lengths = (x != PAD).sum(1, keepdim=True)
        ends = x.gather(1, (lengths - 1).clamp_min(0)) == end
        if not bool((ends | (lengths == x.shape[1])).all()):
            raise ValueError("sequences of unequal length must end with the codec's end token")
        if not bool(ends.all()):
            self.process.check_tokens(x)
            return x, torch.ones_like(x, dtype=torch.bool)
        x = pad(x, (0, -x.shape[1] % self.block), value=PAD)
        x = torch.where(x == PAD, end, x)
        self.process.check_tokens(x)
        filled = -(-lengths // self.block) * self.block
        return x, torch.arange(x.shape[1], device=x.device) < filled

    def hide(self, there: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Sample masked positions and return them with the masked share of their block: there [B, L] → [B, L] bool, float64.

        The number of masks is uniform in 1…m for each block of m tokens, stratified over blocks and sequences.
        """
        return self.hide_at(there, stratified(len(there), there.device, generator), generator)

    def hide_at(self, there: Tensor, v: Tensor, generator: Generator) -> tuple[Tensor, Tensor]:
        """Like `hide`, with numbers of masks from v [B], uniform on [0, 1)."""
        blocks = pad(there, (0, -there.shape[1] % self.block)).unflatten(1, (-1, self.block))  # [B, N, block]
        tokens = blocks.sum(2)
        u = v[:, None] + TURN * torch.arange(blocks.shape[1], dtype=torch.float64, device=there.device)
        count = ((u % 1) * tokens).long() + 1
        hidden = (block_ranks(blocks, there, generator) < count[:, :, None]) & blocks
        share = (count / tokens.clamp_min(1))[:, :, None].expand(hidden.shape)
        return hidden.flatten(1)[:, : there.shape[1]], share.flatten(1)[:, : there.shape[1]]

    def at(self, denoiser: Denoiser, x: Tensor, hidden: Tensor, share: Tensor, weight: Tensor) -> Tensor:
        """Compute Σ_masked weight·(−log μ) for given masked positions: x, hidden, share, weight [B, L] → [B]."""
        return sum_rows(self.terms(denoiser, x, hidden, share, weight), hidden)

    def terms(self, denoiser: Denoiser, x: Tensor, hidden: Tensor, share: Tensor, weight: Tensor) -> Tensor:
        """Compute weight·(−log μ) of each of the n masked positions: [n]."""
        network = block_denoiser(denoiser, "block diffusion")
        x_t = x.masked_fill(hidden, self.process.mask)
        t = share.to(torch.get_default_dtype())
        prediction = network.blocks(x_t, x, t, hidden, self.block).selected(
            self.process, tuple(x.shape), hidden, int(hidden.sum())
        )
        nats = -gather(prediction.log_probs, x[hidden])
        return weight[hidden].to(nats.dtype) * nats


def block_ranks(blocks: Tensor, there: Tensor, generator: Generator) -> Tensor:
    """Return the rank of each position of a block in a random order, padding last: blocks [B, N, block] → the same shape."""
    size = blocks.shape[2]
    order = pad(uniform(there.shape, there.device, generator), (0, -there.shape[1] % size), value=2.0)
    return torch.where(blocks, order.unflatten(1, (-1, size)), 2.0).argsort(2).argsort(2)


class BlockCrossEntropy(BlockElbo):
    """The sum of `BlockElbo` with equal weights: 2m/(m + 1)·Σ_masked −log μ per block. A bound only for blocks of one token.

    first: initial block size, doubled up to the block size of the process over the first half of training.
    whole: share of batches in which (parts of) sequences are one block each, as in MDLM, with a random share of masks.
    hidden: largest share of masks in these batches; infilling needs fewer masks than sampling.
    span: maximum number of adjacent tokens that are masked together in these batches; the number varies by sequence.

    Sequences of at most one block use `CrossEntropy` with a curriculum.
    """

    def __init__(self, process: Blocks, first: int | None = None, whole: float = 0.0, hidden: float = 1.0, span: int = 1):
        super().__init__(process)
        if not 0 <= whole <= 1:
            raise ValueError(f"whole is a share of the batches, 0 to 1, found {whole}")
        if not 0 < hidden <= 1:
            raise ValueError(f"hidden is a share of the tokens, above 0 and at most 1, found {hidden}")
        if isinstance(span, bool) or not isinstance(span, int) or span < 1:
            raise ValueError(f"span must be a whole number of tokens ≥ 1, found {span!r}")
        if first is not None and not 1 <= first <= process.block:
            raise ValueError(f"first must be a block size from 1 to {process.block}, found {first}")
        self.first, self.whole, self.most_hidden, self.span = first or process.block, whole, hidden, span
        self.one_block = CrossEntropy(process, initial_max_t=0.3)

    def set_progress(self, progress: float) -> None:
        self.one_block.set_progress(progress)
        sizes = [self.first]
        while sizes[-1] < self.process.block:
            sizes.append(min(2 * sizes[-1], self.process.block))
        self.block = sizes[min(int(2 * progress * len(sizes)), len(sizes) - 1)]

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        if self.whole and float(uniform((), x.device, generator)) < self.whole:
            return self.as_one_block(denoiser, x, generator)
        if x.shape[1] <= self.process.block:
            return self.one_block(denoiser, x, generator)
        x, there = self.filled(x)
        hidden, share = self.hide(there, generator)
        blocks = pad(there, (0, -there.shape[1] % self.block)).unflatten(1, (-1, self.block))
        tokens = blocks.sum(2, keepdim=True).expand(blocks.shape).flatten(1)[:, : there.shape[1]]
        return self.at(denoiser, x, hidden, share, 2 * tokens / (tokens + 1.0))

    def as_one_block(self, denoiser: Denoiser, x: Tensor, generator: Generator) -> Tensor:
        """Compute 2/h·Σ_masked −log μ(x^i | unmasked tokens), with a masking rate uniform in [0, h] per sequence: [B]."""
        lengths = (x != PAD).sum(1)
        x = self.fragments(x, lengths, generator)
        there = x != PAD
        t = self.most_hidden * stratified(len(x), x.device, generator)
        hidden = (self.hiding_order(x.shape, x.device, generator) < t[:, None]) & there
        x = torch.where(there, x, 0)
        self.process.check_tokens(x)
        if not bool(hidden.any()):
            hidden = there & (torch.arange(x.shape[1], device=x.device) == 0)
        x_t = x.masked_fill(hidden, self.process.mask)
        if isinstance(denoiser, BlockParameterization):
            present = None if bool(there.all()) else there
            log_probs = denoiser.visible(x_t, t.to(torch.get_default_dtype()), hidden, present).log_probs.float()
        else:
            log_probs = predict(denoiser, self.process, x_t, t, hidden).values
        scale = lengths / there.sum(1)
        return sum_rows(-2 / self.most_hidden * gather(log_probs, x[hidden]), hidden) * scale

    def fragments(self, x: Tensor, lengths: Tensor, generator: Generator) -> Tensor:
        """Cut a random part out of each sequence, one eighth to all of it: [B, L] → [B, longest part]."""
        share = FRAGMENT + (1 - FRAGMENT) * float(uniform((), x.device, generator))
        width = (share * lengths).ceil().long()
        start = (uniform((len(x),), x.device, generator) * (lengths - width + 1)).long()
        column = torch.arange(int(width.max()), device=x.device)
        place = (start[:, None] + column).clamp_max(x.shape[1] - 1)
        return x.gather(1, place).masked_fill(column >= width[:, None], PAD)

    def hiding_order(self, shape: torch.Size, device: torch.device, generator: Generator) -> Tensor:
        """Return a number uniform in [0, 1) per token, equal within a span; the token is masked if it is below t: [B, L]."""
        order = uniform(shape, device, generator)
        if self.span == 1:
            return order
        size, shift = (self.span * uniform((shape[0], 2), device, generator)).long().unbind(1)
        number = torch.arange(shape[1], device=device) + shift[:, None]  # a sequence starts anywhere in a span
        return order.gather(1, number // (size + 1)[:, None] % shape[1])


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

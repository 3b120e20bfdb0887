"""Random numbers for batches, from a torch.Generator or from a generator whose row i depends only on (seed, i).

A torch.Generator has one stream for the whole batch, so the numbers of a row depend on the size of the batch. Samplers use a
`RowGenerator`, a counter-based generator like JAX's, in which each number is a hash of its position. A sequence is then the
same whether it is sampled alone, in a batch of a thousand, or in another process.

Categorical samples keep rare tokens. Float32 Gumbel noise has a resolution of 2⁻²⁴, which over a thousand sampling steps
silently drops them and improves every measure of quality. Here the inverse cumulative distribution maps one float64 uniform
number.
"""

import math
from copy import copy

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15 - 2**64  # 2⁶⁴ over the golden ratio: the step of SplitMix64, as a signed number
COMMON = 0x632BE59BD9B4E019  # row number of the stream that all rows share
RESOLUTION = 2.0**-53
ROUNDS = 12  # rounds of the Feistel network that shuffles; with fewer, small permutations are not equally likely


class RowGenerator:
    """Uniform numbers u(seed, row, call, place). Those of row r depend on the seed, on r and on the number of calls for row r.

    rows: row indices of the batch, [B]; for a part of a batch, the indices in the whole batch.
    total: number of rows of the whole batch.
    """

    def __init__(self, seed: int, rows: Tensor, total: int | None = None):
        self.rows, self.total = rows.long(), len(rows) if total is None else total
        self._key = _mix(_mix(torch.tensor([seed], device=rows.device)) + GOLDEN * self.rows)
        self._common = _mix(_mix(torch.tensor([seed], device=rows.device)) ^ COMMON)
        self._calls = torch.zeros_like(self.rows)
        self._common_calls = torch.zeros_like(self._common)

    def uniform(self, shape: tuple[int, ...], where: Tensor | None = None) -> Tensor:
        """Return float64 numbers on [0, 1) of the shape [B, …], or only at the n positions `where`, bool of that shape: [n].

        With `where`, a call does not count for rows without a position. The shape () is one number for all rows.
        """
        if not shape:
            self._common_calls = self._common_calls + 1
            return _unit(_mix(self._common + GOLDEN * self._common_calls))[0]
        if shape[0] != len(self.rows):
            raise ValueError(
                f"a generator for {len(self.rows)} rows cannot fill the shape {list(shape)}: "
                "to draw at some positions of a batch, pass them as `where`"
            )
        call = _mix(self._key + GOLDEN * self._calls)
        if where is None:
            self._calls = self._calls + 1
            return _unit(bits(call, math.prod(shape[1:]))).view(shape)
        needed = where.flatten(1) if where.dim() > 1 else where[:, None]
        self._calls = self._calls + needed.any(1)
        row, place = needed.nonzero(as_tuple=True)
        return _unit(_mix(call[row] + GOLDEN * place))

    def next_keys(self) -> Tensor:
        """Return a key per row, from which `bits` derives repeatable random numbers: [B] long."""
        call = _mix(self._key + GOLDEN * self._calls)
        self._calls = self._calls + 1
        return call

    def fork(self, number: int, rows: Tensor | None = None) -> "RowGenerator":
        """Return an independent generator for each number, for all rows or some of them, [n] long.

        It does not depend on the numbers drawn from this generator.
        """
        fork = copy(self)
        turn = GOLDEN * torch.tensor([2**32 + number], device=self.rows.device)  # beyond the calls of this generator
        fork._key, fork._common = _mix(self._key + turn), _mix(self._common + turn)
        if rows is not None:
            fork.rows, fork._key = self.rows[rows], fork._key[rows]
        fork._calls, fork._common_calls = torch.zeros_like(fork.rows), torch.zeros_like(fork._common)
        return fork

    def common(self, count: int) -> Tensor:
        """Return numbers that do not depend on the rows: [count] float64."""
        self._common_calls = self._common_calls + 1
        places = torch.arange(1, count + 1, device=self.rows.device)
        return _unit(_mix(_mix(self._common + GOLDEN * self._common_calls) + GOLDEN * places))


def bits(keys: Tensor, count: int) -> Tensor:
    """Return the first `count` numbers of 64 random bits of each key: [B] long → [B, count] long."""
    return _mix(keys[:, None] + GOLDEN * torch.arange(count, device=keys.device))


def seed_of(*numbers: int) -> int:
    """Return one seed derived from several numbers, such as a seed and a step."""
    key = torch.zeros(1, dtype=torch.long)
    for number in numbers:
        key = _mix((key ^ torch.tensor([number])) + GOLDEN)
    return int(key)


def shuffled(numbers: Tensor, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the epoch and place of the numbers n ≥ 0 in an order that permutes 0…count − 1 anew each epoch: [B] long each.

    The epoch is n // count, and the place is π(n mod count) for a permutation π determined by (seed, epoch). Nothing is stored.
    π is a Feistel network over the cells (l, r) of a table with at least `count` cells: l ← l + F(r) mod rows and
    r ← r + F(l) mod columns alternate. A result beyond `count` is permuted again until it is not (cycle walking; Black and
    Rogaway 2002, "Ciphers with arbitrary finite domains").
    """
    rows = math.isqrt(count - 1) + 1
    columns = -(-count // rows)
    epoch = numbers // count
    key = _mix(_mix(torch.tensor([seed], device=numbers.device)) + GOLDEN * epoch)
    keys = _mix(key + GOLDEN * torch.arange(1, ROUNDS + 1, device=numbers.device)[:, None])  # [ROUNDS, B]

    def permuted(cell: Tensor) -> Tensor:
        sides, sizes = [cell // columns, cell % columns], (rows, columns)
        for i, key in enumerate(keys):
            mine, other = i % 2, 1 - i % 2
            sides[mine] = (sides[mine] + _shift(_mix(key + GOLDEN * sides[other]), 1) % sizes[mine]) % sizes[mine]
        return sides[0] * columns + sides[1]

    place = permuted(numbers % count)
    while bool((beyond := place >= count).any()):
        place = torch.where(beyond, permuted(place), place)
    return epoch, place


Generator = torch.Generator | RowGenerator | None
"""Source of random numbers; None is torch's global generator."""


def uniform(
    shape: torch.Size | tuple[int, ...], device: torch.device, generator: Generator, where: Tensor | None = None
) -> Tensor:
    """Return float64 uniform numbers on [0, 1) of a shape, or only at the n positions `where`, bool of that shape: [n]."""
    if isinstance(generator, RowGenerator):
        return generator.uniform(tuple(shape), where)
    wanted = shape if where is None else (int(where.sum()),)
    return torch.rand(wanted, dtype=torch.float64, device=device, generator=generator)


def integers(high: int, shape: torch.Size | tuple[int, ...], device: torch.device, generator: Generator) -> Tensor:
    """Return uniform integers 0…high − 1: long of this shape."""
    if isinstance(generator, RowGenerator):
        return (generator.uniform(tuple(shape)) * high).long()
    return torch.randint(high, shape, generator=generator, device=device)


def normal(shape: torch.Size | tuple[int, ...], device: torch.device, generator: Generator, dtype: torch.dtype) -> Tensor:
    """Return standard normal numbers of this shape."""
    if isinstance(generator, RowGenerator):  # by the inverse of the cumulative distribution, never at 0 itself
        return torch.special.ndtri(generator.uniform(tuple(shape)) + RESOLUTION / 2).to(dtype)
    return torch.randn(shape, generator=generator, device=device, dtype=dtype)


def draw(probs: Tensor, generator: Generator = None, where: Tensor | None = None) -> Tensor:
    """Sample an index from each row of unnormalized weights ≥ 0: [..., S] → [...] long.

    y = min{ y : Σ_{k≤y} p_k > u·Σ_k p_k } with u uniform on [0, 1), in float64. where: [B, L] bool, the n positions of a batch
    to which probs [n, S] belong.
    """
    return inverse_cdf(probs, uniform(probs.shape[:-1] if where is None else where.shape, probs.device, generator, where))


def inverse_cdf(probs: Tensor, u: Tensor) -> Tensor:
    """Compute min{ y : Σ_{k≤y} p_k > u·Σ_k p_k } in float64: weights [..., S], u [...] on [0, 1) → [...] long."""
    cumulative = probs.double().cumsum(-1)
    total = cumulative[..., -1:].contiguous()
    if not bool((torch.isfinite(total) & (total > 0)).all()):
        raise ValueError("cannot draw from a prediction with NaN, infinite or no probability at all")
    index = torch.searchsorted(cumulative, u[..., None] * total, right=True)
    # u·total may round up to total: take the last index with positive weight, not one with none
    last = torch.searchsorted(cumulative, total)
    return torch.minimum(index, last)[..., 0]


def poisson(mean: Tensor, generator: Generator = None) -> Tensor:
    """Sample counts k ~ e^{−λ} λ^k/k! for each λ ≥ 0: [...] → [...] long."""
    if not isinstance(generator, RowGenerator):
        return torch.poisson(mean, generator=generator).long()
    most = float(mean.max()) if mean.numel() else 0.0
    k = torch.arange(int(most + 12 * most**0.5 + 24), device=mean.device, dtype=torch.float64)
    log_p = torch.xlogy(k, mean.double()[..., None]) - mean.double()[..., None] - torch.lgamma(k + 1)
    return draw(log_p.exp(), generator)


def _mix(z: Tensor) -> Tensor:
    """Apply the finaliser of SplitMix64 (Steele, Lea and Flood 2014), a bijection in which each bit depends on all 64."""
    z = (z ^ _shift(z, 30)).mul_(0xBF58476D1CE4E5B9 - 2**64)
    z = z.bitwise_xor_(_shift(z, 27)).mul_(0x94D049BB133111EB - 2**64)
    return z.bitwise_xor_(_shift(z, 31))


def _shift(z: Tensor, bits: int) -> Tensor:
    """Compute z >> bits for unsigned numbers that torch stores as signed ones."""
    return (z >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _unit(z: Tensor) -> Tensor:
    """Return the upper 53 bits as a number on [0, 1)."""
    return _shift(z, 11).double().mul_(RESOLUTION)

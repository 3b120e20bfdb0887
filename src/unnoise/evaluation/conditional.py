"""Bounds on −log p(answer | prompt), in which only the answer is noised.

For masked noise this is the model's own conditional. The number of masks is drawn instead of a time, and stratified over the
draws (`MaskCounts`; ARDM, arXiv:2110.02037; LLaDA, arXiv:2502.09992). One network call is exact if one token is free and the
network ignores t. For other noise, such as uniform noise, a clean prompt is a heuristic: the result is a bound on the
distribution that `infill` samples from.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise import distributed
from unnoise.denoiser import Denoiser, predict_clean
from unnoise.distributed import rows_at_once
from unnoise.families.autoregressive import Autoregressive, next_token_denoiser
from unnoise.families.block import Blocks, block_denoiser
from unnoise.families.block_objective import TURN, BlockElbo
from unnoise.model.draws import mask_counts
from unnoise.model.model import Model
from unnoise.objective import Elbo
from unnoise.objective.losses import noise_end, random_part
from unnoise.process import Masked
from unnoise.process.process_base import gather
from unnoise.rng import RowGenerator, seed_of

SETS = 4  # independent sets of draws, which give the standard error
ROWS = 32  # maximum number of rows of one network call
Draw = Callable[[Tensor, Tensor, Tensor, RowGenerator], Tensor]
"""x, free [B, L], v [B] uniform on [0, 1), generator → nats [B]: one draw."""


@dataclass(frozen=True)
class Conditional:
    """Bounds of N answers in nats.

    nats: bound of each answer [N] float64.
    stderr: standard error of each bound over the draws [N] float64.
    error: standard error of the sum of all bounds.
    draws: number of draws of each answer [N].
    exact: whether each bound is −log p itself [N] bool.
    """

    nats: Tensor
    stderr: Tensor
    error: float
    draws: Tensor
    exact: Tensor


@torch.no_grad()
def conditional(
    model: Model,
    x: Tensor,
    known: Tensor,
    *,
    draws: int = 128,
    seed: int = 0,
    sets: int = SETS,
    numbers: Tensor | None = None,
) -> Conditional:
    """Return −log p(x at the other positions | x at the positions `known`), or a bound on it.

    x: tokens [N, L] long.
    known: positions that are given [N, L] bool.
    draws: number of draws of each answer, in `sets` independent sets. An exact answer takes one draw.
    numbers: indices of the rows, which determine their noise together with the seed. Default: 0…N − 1.
    """
    if sets < 2 or draws < sets:
        raise ValueError(f"an error bar needs at least {max(sets, 2)} draws, found {draws}")
    model.network.eval()
    x, free = x.to(model.device), ~known.to(model.device)
    estimator = conditional_bound(model)
    certain = is_exact(model, free)
    numbers = torch.arange(len(x), device=x.device) if numbers is None else numbers.to(x.device)
    nats, stderr = (torch.zeros(len(x), dtype=torch.float64) for _ in range(2))
    error = 0.0
    if bool(certain.any()):
        nats[certain.cpu()] = _rows(estimator, x[certain], free[certain], numbers[certain], each=1, seed=seed)[:, 0]
    if not bool(certain.all()):
        some = ~certain
        each = draws // sets
        found = torch.stack(
            [
                _rows(estimator, x[some], free[some], numbers[some], each=each, seed=seed_of(seed, i)).mean(1)
                for i in range(sets)
            ]
        )
        nats[some.cpu()] = found.mean(0)
        stderr[some.cpu()] = found.std(0) / math.sqrt(sets)
        error = float(found.sum(1).std() / math.sqrt(sets))
    counts = torch.where(certain.cpu(), 1, draws // sets * sets)
    return Conditional(nats, stderr, error, counts, certain.cpu())


def _rows(estimator: Draw, x: Tensor, free: Tensor, numbers: Tensor, *, each: int, seed: int) -> Tensor:
    """Return stratified draws of every row: [N, each] float64. The draws of a row depend only on its number."""
    rows = torch.arange(len(x), device=x.device).repeat_interleave(each)
    place = torch.arange(each, device=x.device).repeat(len(x))
    shift = RowGenerator(seed_of(seed, each), numbers).uniform((len(x),)) if each > 1 else _spread(seed, numbers)
    v = (shift[rows] + place / each) % 1
    at_once = rows_at_once(x.shape[1], ROWS, x.device)
    parts = torch.arange(len(rows), device=x.device).split(at_once)

    def some(i: int) -> Tensor:
        part = parts[i]
        generator = RowGenerator(seed, numbers[rows[part]] * each + place[part])
        return estimator(x[rows[part]], free[rows[part]], v[part], generator).double().cpu()

    return torch.cat(distributed.map_ranks(len(parts), some)).view(len(x), each)


def _spread(seed: int, numbers: Tensor) -> Tensor:
    """Return u + n·(golden ratio) mod 1 with one u for all rows: each is uniform, together they are evenly spread: [N]."""
    return (RowGenerator(seed, numbers).uniform(()) + TURN * numbers.double()) % 1


def conditional_bound(model: Model) -> Draw:
    """Return the function that draws the conditional bound of a model, or raise ValueError if there is none."""
    bound, denoiser = model.bound, model.denoiser
    if isinstance(bound, Autoregressive):
        return lambda x, free, v, generator: next_token_nats(model, x, free)
    if isinstance(bound, BlockElbo):
        return lambda x, free, v, generator: block_nats(bound, denoiser, x, free, v=v, generator=generator)
    counts = mask_counts(model)
    if counts is not None:
        return lambda x, free, v, generator: counts.draw(denoiser, x, free, v, generator) + counts.fixed(denoiser, x, free)
    if isinstance(bound, Elbo):
        return lambda x, free, v, generator: (
            random_part(bound, denoiser, x, free, v=v, generator=generator) + noise_end(bound, denoiser, x, free)
        )
    raise ValueError(f"{model.method.name} has no bound on −log p(answer | prompt)")


def counts_masks(model: Model) -> bool:
    """Return whether the number of masks can be drawn instead of a time."""
    return mask_counts(model) is not None


def is_exact(model: Model, free: Tensor) -> Tensor:
    """Return for which answers one draw is −log p itself: free [N, L] → [N] bool."""
    if model.method.exact:
        return torch.ones(len(free), dtype=torch.bool, device=free.device)
    one_call = model.method.time_free and (counts_masks(model) or isinstance(model.bound, BlockElbo))
    return (free.sum(1) <= 1) & one_call


def next_token_nats(model: Model, x: Tensor, free: Tensor) -> Tensor:
    """Return Σ_free −log p(x^i | x^{<i}), which is exact: [B]. All given positions must come before the free ones."""
    _check_prefix(free)
    return -(gather(next_token_log_probs(model, x), x) * free).sum(-1)


def next_token_log_probs(model: Model, x: Tensor) -> Tensor:
    """Return log p(x^i | x^{<i}) at every position: [B, L] → [B, L, K]."""
    network = next_token_denoiser(model.denoiser, "the autoregressive likelihood")
    start = torch.full_like(x[:, :1], model.process.vocab)
    return network.next_token(torch.cat([start, x[:, :-1]], 1), None)[0]


def block_nats(bound: BlockElbo, denoiser: Denoiser, x: Tensor, free: Tensor, v: Tensor, generator: RowGenerator) -> Tensor:
    """Return Σ_k m/j · Σ_i −log μ(x^i | rest of block k, x^{<k}), over j masked of the m free positions i of block k: [B]."""
    _check_prefix(free)
    hidden, share = bound.hide_at(free, v, generator)
    return bound.at(denoiser, x, hidden, share, torch.where(hidden, 1 / share.clamp_min(1e-9), 0))


def _check_prefix(free: Tensor) -> None:
    if not bool((free.long().diff(dim=1) >= 0).all()):
        raise ValueError("this model generates from left to right: all given positions must come before the others")


@torch.no_grad()
def greedy(model: Model, x: Tensor, known: Tensor) -> Tensor:
    """Return whether greedy sampling, given the positions `known`, generates x: [N] bool.

    Autoregressive models sample from left to right. Masked models unmask the most confident position first, one per call, as in
    LLaDA's evaluation (block diffusion: of the first unfinished block). The result is False for other noise.
    """
    model.network.eval()
    x, free = x.to(model.device), ~known.to(model.device)
    if isinstance(model.bound, Autoregressive):
        best = torch.cat([next_token_log_probs(model, part).argmax(-1) for part in x.split(ROWS)])
        return ((best == x) | ~free).all(1).cpu()
    process = model.process
    if not isinstance(process, Masked) or not (counts_masks(model) or isinstance(model.bound, BlockElbo)):
        return torch.zeros(len(x), dtype=torch.bool)
    block = process.block if isinstance(process, Blocks) else x.shape[1]
    right = torch.ones(len(x), dtype=torch.bool, device=x.device)
    hidden = free.clone()
    while bool((alive := right & hidden.any(1)).any()):
        rows = alive.nonzero()[:, 0][:ROWS]
        best, place = _surest(model, x[rows], hidden[rows], block)
        right[rows] &= best == x[rows].gather(1, place[:, None])[:, 0]
        hidden[rows, place] = False
    return right.cpu()


def _surest(model: Model, x: Tensor, hidden: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """Return the most probable token at the most confident position of each row, and that position: [B] long each."""
    process = model.process
    assert isinstance(process, Masked)
    first = hidden.long().argmax(1) // block
    now = hidden & (torch.arange(x.shape[1], device=x.device) // block == first[:, None])
    x_t = x.masked_fill(hidden, process.mask)
    share = hidden.sum(1) / x.shape[1]
    if isinstance(process, Blocks):
        t = share[:, None].expand(x.shape).to(torch.get_default_dtype())
        log_p = block_denoiser(model.denoiser, "block diffusion").blocks(x_t, x_t, t, now, block).log_probs
    else:
        log_p = predict_clean(model.denoiser, process, x_t, process.schedule.inverse(1 - share.double()), now)
    surest = log_p.max(-1)
    value = torch.full(x.shape, -torch.inf, device=x.device).masked_scatter(now, surest.values.float())
    place = value.argmax(1)
    token = torch.zeros_like(x).masked_scatter(now, surest.indices)
    return gather(token, place), place

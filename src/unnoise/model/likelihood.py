"""Measuring with a model: −log p of texts, or a bound on it, in nats and in bits per character.

A bound is drawn at random times. Within one call the times are stratified, so that its rows are not independent; the error bar
comes from independent calls on the same rows. There are two errors, told apart: that of drawing, for these texts, and that of
having measured these texts and no others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unnoise import distributed
from unnoise.data.texts import Texts
from unnoise.families.block import BlockImportanceWeighted, Blocks
from unnoise.network.batches import rows_at_once
from unnoise.network.parameterization import MeanParameterization
from unnoise.objective import ImportanceWeighted, Objective
from unnoise.process.masked import Masked
from unnoise.process.state import PAD
from unnoise.rng import RowGenerator, seed_of

if TYPE_CHECKING:
    from unnoise.model.model import Model

ROWS = 32  # sequences among which times are stratified
FEWEST_SETS = 2  # independent sets of draws that an error bar needs
SCORE_DRAWS, SCORE_ERROR = 32, 0.01  # of `score`: at most so many, or until the error is so many bits per character


@dataclass(frozen=True)
class Score:
    """−log p(text), or a bound on it: nats in all, bits per character, and the standard error of that figure by drawing.

    exact: whether it is −log p itself. windows: into how many pieces of the model's length the text was cut. read: the text as
    it was read, if the model's alphabet made another one of it (that one's characters are counted). draws: of the bound, for
    each piece at least. orders: of the importance-weighted bound, if it is that one.
    """

    nats: float
    bits_per_char: float
    stderr: float
    exact: bool
    windows: int = 1
    characters: int = 0
    read: str | None = None
    draws: int = 1
    orders: int | None = None


@dataclass(frozen=True)
class Estimate:
    """Nats of each of N texts, the mean of so many draws: [N]; and the standard error of their sum by drawing."""

    nats: Tensor
    error: float
    draws: int


@torch.no_grad()
def estimate(
    model: "Model", x: Tensor, most: int, error: float = 0.0, seed: int = 0, bound: Objective | None = None
) -> Estimate:
    """The bound of texts x [N, L] by at most `most` draws for each, or until the standard error of the sum is `error` nats.
    bound: another than the model's own.

    A set is one draw for up to 32 rows with stratified times (few texts are repeated to fill it). With r sets of each group of
    rows the variance of the sum is Σ_groups var(sums of the group's sets)/r.
    """
    model.network.eval()
    x = x.to(model.device)
    groups = x.split(ROWS)
    if model.method.exact:
        return Estimate(_bounds(model, groups, None), 0.0, 1)
    bound = bound or model.bound
    copies = max(1, min(ROWS // len(x), most // FEWEST_SETS))
    filled = [group.repeat(copies, 1) for group in groups]
    sets: list[Tensor] = []  # [N] each
    spread = 0.0
    while len(sets) < FEWEST_SETS or (spread > error and (len(sets) + 1) * copies <= most):
        drawn = _bounds(model, filled, (seed, len(sets)), bound).split([len(rows) for rows in filled])
        sets.append(torch.cat([rows.view(copies, -1).mean(0) for rows in drawn]))
        sums = torch.stack([torch.stack([group.sum() for group in one.split(ROWS)]) for one in sets])  # [sets, groups]
        spread = float((sums.var(0).sum() / len(sets)).sqrt()) if len(sets) > 1 else math.inf
        spread = distributed.first_says(spread, model.device)  # all stop at the same draw
    return Estimate(torch.stack(sets).mean(0), spread, len(sets) * copies)


def _bounds(
    model: "Model", groups: Sequence[Tensor], seeds: tuple[int, ...] | None, objective: Objective | None = None
) -> Tensor:
    """The bound of each row of each group, one draw with the noise of (seeds, group, row), or none: [Σ n] float64.

    Some rows at a time, shared out over the processes; a row's noise does not depend on which are computed with it.
    """
    at_once = rows_at_once(groups[0].shape[1], ROWS, model.device, model.process.vocab)
    parts = [
        (i, part) for i, group in enumerate(groups) for part in torch.arange(len(group), device=group.device).split(at_once)
    ]

    def bound(number: int) -> Tensor:
        i, part = parts[number]
        generator = None if seeds is None else RowGenerator(seed_of(*seeds, i), part, len(groups[i]))
        return (objective or model.bound)(model.denoiser, groups[i][part], generator).double().cpu()

    return torch.cat(distributed.each(len(parts), bound))


def check_error(error: float) -> None:
    """ValueError unless drawing can stop at this standard error."""
    if not 0 <= error < math.inf:
        raise ValueError(f"the standard error to stop at must be ≥ 0 and finite, found {error}")


def importance_weighted(model: "Model", orders: int) -> Objective:
    """The importance-weighted bound of a model, or ValueError if it has none."""
    process = model.process
    masked = isinstance(process, Masked) and not process.per_token and model.method.time_free
    if not masked or not issubclass(model.method.parameterization, MeanParameterization):
        raise ValueError(
            f"orders are for models of masked noise that do not read the time, such as mdlm, ardm and bd3lm, and not for "
            f"{model.method.name}"
        )
    return BlockImportanceWeighted(process, orders) if isinstance(process, Blocks) else ImportanceWeighted(process, orders)


def score(
    model: "Model",
    texts: Sequence[str],
    samples: int | None,
    seed: int,
    error: float = SCORE_ERROR,
    orders: int | None = None,
) -> Score:
    """−log p of several texts together; a longer text than the model's is scored in windows. error: in bits per character."""
    bound = None if orders is None or model.method.exact else importance_weighted(model, orders)
    if samples is None:
        samples = SCORE_DRAWS if bound is None else FEWEST_SETS
    if samples < FEWEST_SETS and not model.method.exact:
        raise ValueError(f"an error bar needs at least {FEWEST_SETS} samples, found {samples}")
    check_error(error)
    pieces: dict[int, list[np.ndarray]] = {}
    read = []
    for one in texts:
        tokens = model.codec.encode(one)
        read.append(model.codec.decode(tokens))
        for start in range(0, len(tokens), model.length):
            piece = tokens[start : start + model.length]
            pieces.setdefault(len(piece), []).append(piece)
    if not pieces:
        raise ValueError("there is no text to score")
    characters = sum(map(model.codec.count, read))
    bits = characters * math.log(2)
    windows = sum(map(len, pieces.values()))
    total, variance, draws = 0.0, 0.0, []
    for length, group in sorted(pieces.items()):
        allowed = error * bits * math.sqrt(len(group) / windows)  # variances add up, so each group may have its share
        found = estimate(model, torch.from_numpy(np.stack(group)), samples, allowed, seed + length, bound)
        total, variance = total + float(found.nats.sum()), variance + found.error**2
        draws.append(found.draws)
    return Score(
        total,
        total / bits,
        math.sqrt(variance) / bits,
        model.method.exact,
        windows=windows,
        characters=characters,
        read=None if read == list(texts) else "\n".join(read),
        draws=min(draws),
        orders=None if bound is None else orders,
    )


@torch.no_grad()
def nats(model: "Model", x: Tensor, draws: int = 1, seed: int = 0) -> Tensor:
    """Draws of the bound for each sequence, each draw of all of them a set of its own: x [B, L] → [draws, B] float64."""
    model.network.eval()
    x = x.to(model.device)
    generator = torch.Generator(x.device).manual_seed(seed)
    rows = [part for _ in range(draws) for part in x.split(ROWS)]
    return torch.cat([model.bound(model.denoiser, part, generator).double().cpu() for part in rows]).view(draws, len(x))


@dataclass(frozen=True)
class BitsPerChar:
    """Bits per character (or dimension) over some texts.

    stderr: the standard error by drawing, for these texts (0 where the figure is exact). text_stderr: the standard error as a
    figure about all such texts, over the texts that were measured; None for a single one. draws: of the bound for each text.
    """

    bits: float
    stderr: float
    text_stderr: float | None
    windows: int
    draws: int


def bits_per_char(
    model: "Model", texts: Texts, windows: int | None, draws: int, seed: int = 0, error: float = 0.0
) -> BitsPerChar:
    """Over at most so many of the texts: nats / (log 2 · characters a token · tokens).

    draws: of the bound for each text, at most; error: or until the standard error is so many bits per character.
    """
    check_error(error)
    x = texts.windows(windows)
    tokens = (x != PAD).sum(1).double().cpu()
    scale = 1 / (math.log(2) * texts.characters * float(tokens.sum()))
    found = estimate(model, x, max(draws, FEWEST_SETS), error / scale, seed)
    ratio = found.nats.sum() / tokens.sum()
    spread = float((found.nats - ratio * tokens).std() * len(x) ** 0.5) * scale if len(x) > 1 else None
    return BitsPerChar(float(found.nats.sum()) * scale, found.error * scale, spread, len(x), found.draws)

"""Likelihoods of texts under a model: −log p or an upper bound, in nats and in bits per character.

There are two kinds of errors: the Monte Carlo error for the measured texts (model/draws.py), and the sampling error from
measuring these texts and no others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unnoise.data.texts import SequenceData
from unnoise.families.block import Blocks
from unnoise.families.block_objective import BlockImportanceWeighted
from unnoise.model.draws import ROWS, draws_for_error, estimate, planned_draws
from unnoise.model.error_bars import Spread
from unnoise.network.parameterization import MeanParameterization
from unnoise.objective import ImportanceWeighted, Objective
from unnoise.process.masked import Masked
from unnoise.process.state import PAD

if TYPE_CHECKING:
    from unnoise.model.model import Model

SCORE_DRAWS = 32  # default maximum number of draws of a score
SCORE_ERROR = 0.01  # default standard error of a score, in bits per character
ORDERED_DRAWS = 2  # default number of draws of the importance-weighted bound


@dataclass(frozen=True)
class Score:
    """−log p of one or more texts together, or an upper bound on it.

    nats: sum over all texts.
    bits_per_char: nats / (log 2 · characters).
    stderr: Monte Carlo standard error of bits_per_char; 0 without random draws, None if there were too few.
    exact: whether this is −log p itself; else it is a bound that includes all boundary terms.
    windows: number of windows of at most the model's length.
    characters: number of characters, in the model's alphabet.
    read: the texts as the codec decodes them, if it changes them.
    draws: smallest number of draws of the bound for a window.
    orders: number of orders of the importance-weighted bound, if it was used.
    interval: 95 % confidence interval of the bound, in bits per character.
    reached: whether stderr is at most the requested one.
    enumerated: whether all choices of masks were evaluated, so that the bound has no Monte Carlo error.
    """

    nats: float
    bits_per_char: float
    stderr: float | None
    exact: bool
    windows: int = 1
    characters: int = 0
    read: str | None = None
    draws: int = 1
    orders: int | None = None
    interval: tuple[float, float] | None = None
    reached: bool = True
    enumerated: bool = False


@dataclass(frozen=True)
class BitsPerChar:
    """Bits per character (or dimension) of a set of sequences.

    stderr: Monte Carlo standard error for these sequences; 0 without random draws.
    text_stderr: standard error over the population of sequences, from the spread of the measured ones; None for a single one.
    windows: number of sequences.
    draws: number of draws of the bound for each sequence.
    interval: 95 % confidence interval for these sequences.
    reached: whether stderr is at most the requested one.
    """

    bits: float
    stderr: float
    text_stderr: float | None
    windows: int
    draws: int
    interval: tuple[float, float]
    reached: bool = True


def check_error(error: float) -> None:
    """Raise ValueError unless a number is a standard error to aim for."""
    if not 0 <= error < math.inf:
        raise ValueError(f"the standard error to stop at must be ≥ 0 and finite, found {error}")


def importance_weighted(model: "Model", orders: int) -> Objective:
    """Return the importance-weighted bound of a model, or raise ValueError if it has none."""
    process = model.process
    masked = isinstance(process, Masked) and not process.per_token and model.method.time_free
    if not masked or not issubclass(model.method.parameterization, MeanParameterization):
        raise ValueError(
            f"orders are for masked models without time conditioning, such as mdlm, ardm and bd3lm, and not for "
            f"{model.method.name}"
        )
    return BlockImportanceWeighted(process, orders) if isinstance(process, Blocks) else ImportanceWeighted(process, orders)


def score(
    model: "Model",
    text: str | Sequence[str],
    samples: int | None = None,
    seed: int = 0,
    error: float = SCORE_ERROR,
    orders: int | None = None,
) -> Score:
    """Return −log p of a text, or of several together, or an upper bound on it. Long texts are scored in windows.

    samples: maximum number of draws of the bound; by default 32, or 2 with orders. A standard error for one text needs 16.
    error: standard error to aim for, in bits per character, planned from a few pilot draws; 0 takes all of `samples`.
    orders: number M of orders of the importance-weighted bound, for masked models without time conditioning. The bound becomes
        tighter with M; each order takes one network call per token.
    """
    texts = [text] if isinstance(text, str) else list(text)
    bound = None if orders is None or model.method.exact else importance_weighted(model, orders)
    if samples is None:
        samples = SCORE_DRAWS if bound is None else ORDERED_DRAWS
    if samples < 1:
        raise ValueError(f"a score needs at least 1 sample, found {samples}")
    check_error(error)
    encoded = [model.codec.encode(one) for one in texts]
    pieces: dict[int, list[np.ndarray]] = {}
    for tokens in encoded:
        for start in range(0, len(tokens), model.length):
            piece = tokens[start : start + model.length]
            pieces.setdefault(len(piece), []).append(piece)
    if not pieces:
        raise ValueError("there is no text to score")
    groups = [torch.from_numpy(np.stack(group)) for _, group in sorted(pieces.items())]
    read = [model.codec.decode(tokens) for tokens in encoded]
    characters = sum(map(model.codec.count, read))
    bits = characters * math.log(2)
    draws = planned_draws(model, groups, samples, error=error * bits, seed=seed, bound=bound)
    found = [estimate(model, x, draws, seed + x.shape[1], bound) for x in groups]
    total = sum(float(one.nats.sum()) for one in found)
    spread = sum((one.spread for one in found), Spread())
    return Score(
        nats=total,
        bits_per_char=total / bits,
        stderr=spread.stderr / bits if spread.known else None,
        exact=model.method.exact,
        windows=sum(map(len, groups)),
        characters=characters,
        read=None if read == texts else "\n".join(read),
        draws=min(one.draws for one in found),
        orders=None if bound is None else orders,
        interval=_interval(total, spread, 1 / bits),
        reached=_reached(spread, error * bits),
        enumerated=not model.method.exact and all(one.enumerated for one in found),
    )


def _interval(nats: float, spread: Spread, scale: float) -> tuple[float, float] | None:
    """Return the 95 % interval of a sum of nats times `scale`, or None if there were too few draws."""
    if not spread.known:
        return None
    half = spread.half_width()
    return (nats - half) * scale, (nats + half) * scale


def _reached(spread: Spread, error: float) -> bool:
    return error == 0 or (spread.known and spread.stderr <= error)


@torch.no_grad()
def nats(model: "Model", x: Tensor, draws: int = 1, seed: int = 0) -> Tensor:
    """Return independent draws of the bound for each sequence: x [B, L] → [draws, B] float64."""
    model.network.eval()
    x = x.to(model.device)
    generator = torch.Generator(x.device).manual_seed(seed)
    rows = [part for _ in range(draws) for part in x.split(ROWS)]
    return torch.cat([model.bound(model.denoiser, part, generator).double().cpu() for part in rows]).view(draws, len(x))


def bits_per_char(
    model: "Model", texts: SequenceData, windows: int | None, draws: int, seed: int = 0, error: float = 0.0
) -> BitsPerChar:
    """Return nats / (log 2 · characters per token · tokens) over sequences.

    windows: maximum number of sequences, evenly spaced; None for all.
    draws: maximum number of draws of the bound for each sequence; a standard error may need more.
    error: standard error to aim for, in bits per character; 0 takes all draws.
    """
    check_error(error)
    x = texts.windows(windows)
    tokens = (x != PAD).sum(1).double().cpu()
    scale = 1 / (math.log(2) * texts.characters * float(tokens.sum()))
    draws = planned_draws(model, [x], max(draws, draws_for_error(model, *x.shape)), error=error / scale, seed=seed)
    found = estimate(model, x, draws, seed)
    nats = float(found.nats.sum())
    interval = _interval(nats, found.spread, scale)
    assert interval is not None
    return BitsPerChar(
        bits=nats * scale,
        stderr=found.spread.stderr * scale,
        text_stderr=float((found.nats - nats / tokens.sum() * tokens).std() * len(x) ** 0.5) * scale if len(x) > 1 else None,
        windows=len(x),
        draws=found.draws,
        interval=interval,
        reached=_reached(found.spread, error / scale),
    )

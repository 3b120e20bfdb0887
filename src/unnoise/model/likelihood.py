"""Measuring with a model: −log p of texts, or a bound on it, in nats and in bits per character.

There are two errors, told apart: the error by drawing, for these texts (model/draws.py), and the error of having measured these
texts and no others.
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
from unnoise.model.draws import ROWS, Spread, draws_for_error, estimate, planned_draws
from unnoise.network.parameterization import MeanParameterization
from unnoise.objective import ImportanceWeighted, Objective
from unnoise.process.masked import Masked
from unnoise.process.state import PAD

if TYPE_CHECKING:
    from unnoise.model.model import Model

SCORE_DRAWS, SCORE_ERROR = 32, 0.01  # of `score`: at most so many, or so many that the error is so many bits per character
ORDERED_DRAWS = 2  # of the importance-weighted bound


@dataclass(frozen=True)
class Score:
    """−log p(text), or an upper bound on it, for several texts together.

    nats: in all. bits_per_char: nats / (log 2 · characters).
    stderr: standard error of bits_per_char by drawing; 0 where nothing was drawn, None where there were too few draws for one.
    exact: whether it is −log p itself; else it is the bound of the model's own process, every boundary term included.
    windows: into how many pieces of the model's length the text was cut.
    read: the text in the model's alphabet, if that changed it (its characters are counted then).
    draws: of the bound, for each piece at least. enumerated: whether these were all choices of masks, and nothing was drawn.
    orders: of the importance-weighted bound, if it is that one.
    interval: lower and upper end of a 95 % confidence interval for the exact value of the bound, in bits per character.
    reached: whether stderr is at most the one that was asked for.
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
        samples = SCORE_DRAWS if bound is None else ORDERED_DRAWS
    if samples < 1:
        raise ValueError(f"a score needs at least 1 sample, found {samples}")
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
    groups = [torch.from_numpy(np.stack(group)) for _, group in sorted(pieces.items())]
    characters = sum(map(model.codec.count, read))
    bits = characters * math.log(2)
    draws = planned_draws(model, groups, samples, error * bits, seed, bound)
    found = [estimate(model, x, draws, seed + x.shape[1], bound) for x in groups]
    total = sum(float(one.nats.sum()) for one in found)
    spread = sum((one.spread for one in found), Spread())
    return Score(
        total,
        total / bits,
        spread.stderr / bits if spread.known else None,
        model.method.exact,
        windows=sum(map(len, groups)),
        characters=characters,
        read=None if read == list(texts) else "\n".join(read),
        draws=min(one.draws for one in found),
        orders=None if bound is None else orders,
        interval=_interval(total, spread, 1 / bits),
        reached=_reached(spread, error * bits),
        enumerated=not model.method.exact and all(one.enumerated for one in found),
    )


def _interval(nats: float, spread: Spread, scale: float) -> tuple[float, float] | None:
    """Return the 95 % interval of a sum of nats, in other units, or None where too little was drawn for one."""
    if not spread.known:
        return None
    half = spread.half_width()
    return (nats - half) * scale, (nats + half) * scale


def _reached(spread: Spread, error: float) -> bool:
    """Return whether the standard error is at most `error`, in nats; 0 asks for none."""
    return error == 0 or (spread.known and spread.stderr <= error)


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

    stderr: standard error by drawing, for these texts (0 where nothing was drawn).
    text_stderr: standard error for all texts of this kind, from the spread over those measured; None for a single one.
    windows: texts. draws: of the bound for each text.
    interval: 95 % confidence interval by drawing, for these texts.
    reached: whether stderr is at most the one that was asked for.
    """

    bits: float
    stderr: float
    text_stderr: float | None
    windows: int
    draws: int
    interval: tuple[float, float]
    reached: bool = True


def bits_per_char(
    model: "Model", texts: SequenceData, windows: int | None, draws: int, seed: int = 0, error: float = 0.0
) -> BitsPerChar:
    """Return nats / (log 2 · characters a token · tokens), over at most `windows` of the texts.

    draws: of the bound for each text, at most, but as many as an error bar takes; error: or so many that the standard error is
    so many bits per character.
    """
    check_error(error)
    x = texts.windows(windows)
    tokens = (x != PAD).sum(1).double().cpu()
    scale = 1 / (math.log(2) * texts.characters * float(tokens.sum()))
    draws = planned_draws(model, [x], max(draws, draws_for_error(model, *x.shape)), error / scale, seed)
    found = estimate(model, x, draws, seed)
    nats = float(found.nats.sum())
    spread = float((found.nats - nats / tokens.sum() * tokens).std() * len(x) ** 0.5) * scale if len(x) > 1 else None
    interval = _interval(nats, found.spread, scale)
    assert interval is not None
    reached = _reached(found.spread, error / scale)
    return BitsPerChar(nats * scale, found.error * scale, spread, len(x), found.draws, interval, reached)

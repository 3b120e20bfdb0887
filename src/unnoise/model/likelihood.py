"""Measuring with a model: −log p of texts, or a bound on it, in nats and in bits per character."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unnoise.data.texts import Texts
from unnoise.process.state import PAD

if TYPE_CHECKING:
    from unnoise.model.model import Model

ROWS = 32  # sequences evaluated at once


@dataclass(frozen=True)
class Score:
    """−log p(text), or a bound on it: nats in all, bits per character, the standard error of that figure.

    exact: whether it is −log p itself. windows: into how many pieces of the model's length the text was cut. read: the text as
    it was read, if the model's alphabet made another one of it (that one's characters are counted).
    """

    nats: float
    bits_per_char: float
    stderr: float
    exact: bool
    windows: int = 1
    characters: int = 0
    read: str | None = None


def score(model: "Model", texts: Sequence[str], samples: int, seed: int) -> Score:
    """−log p of several texts together; a longer text than the model's is scored in windows."""
    if samples < 2 and not model.method.exact:
        raise ValueError(f"an error bar needs at least 2 samples, found {samples}")
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
    draws = torch.zeros(1 if model.method.exact else samples, dtype=torch.float64)
    for length, group in sorted(pieces.items()):
        x = torch.from_numpy(np.stack(group))
        draws += nats(model, x, len(draws), seed + length).sum(1)
    spread = float(draws.std() / len(draws) ** 0.5) if len(draws) > 1 else 0.0
    characters = sum(map(len, read))
    bits = characters * np.log(2)
    return Score(
        float(draws.mean()),
        float(draws.mean() / bits),
        float(spread / bits),
        model.method.exact,
        windows=sum(map(len, pieces.values())),
        characters=characters,
        read=None if read == list(texts) else "\n".join(read),
    )


@torch.no_grad()
def nats(model: "Model", x: Tensor, draws: int = 1, seed: int = 0) -> Tensor:
    """Draws of the bound for each sequence: x [B, L] → [draws, B] float64."""
    model.network.eval()
    x = x.to(model.device)
    generator = torch.Generator(x.device).manual_seed(seed)
    out = torch.zeros(draws, len(x), dtype=torch.float64)
    # rows of all draws together, so that the times are stratified over a text's draws as well as over texts
    rows = x.repeat(draws, 1)
    for start in range(0, len(rows), ROWS):
        out.view(-1)[start : start + ROWS] = model.bound(model.denoiser, rows[start : start + ROWS], generator).double().cpu()
    return out


def evaluate(model: "Model", x: Tensor, draws: int = 1, seed: int = 0) -> tuple[float, float]:
    """Nats per token over texts x [N, L], padded with −1, and the standard error of that ratio over the texts."""
    values = nats(model, x, 1 if model.method.exact else draws, seed).mean(0)
    tokens = (x != PAD).sum(1).double().cpu()
    ratio = values.sum() / tokens.sum()
    return float(ratio), float((values - ratio * tokens).std() * len(x) ** 0.5 / tokens.sum())


def bits_per_char(model: "Model", texts: Texts, windows: int | None, draws: int, seed: int = 0) -> tuple[float, float]:
    """Bits per character (or dimension) over at most so many of the texts, and the standard error:

    nats a token / (log 2 · characters a token).
    """
    scale = 1 / (math.log(2) * texts.characters)
    value, error = evaluate(model, texts.windows(windows), draws, seed)
    return value * scale, error * scale

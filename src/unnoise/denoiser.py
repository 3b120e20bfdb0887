"""A denoiser is any callable `(x_t, t, where=None) -> Prediction`; this is the one place where one is called."""

from typing import Protocol

import torch
from torch import Tensor

from unnoise.prediction import Prediction
from unnoise.process.base import LATEST, Process


class Denoiser(Protocol):
    """x_t: [B, L] long, t: [B] float, where: [B, L] bool or None.

    Without `where` the prediction has shape [B, L, ·]; with it only those n positions are needed, in row-major order, as
    [n, ·]. A denoiser that computed everything anyway may return it all.
    """

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> Prediction: ...


def ask(denoiser: Denoiser, process: Process, x_t: Tensor, t: Tensor, where: Tensor) -> Prediction:
    """The denoiser's prediction at the n positions `where`: [n, ·], its shape checked.

    Times are kept in float64 in this package; a denoiser gets them in torch's default dtype.
    """
    everywhere = bool(where.all())
    prediction = denoiser(x_t, t.clamp_max(LATEST).to(torch.get_default_dtype()), None if everywhere else where)
    if not isinstance(prediction, Prediction):
        raise ValueError(f"a denoiser must return a MeanPrediction or a ScorePrediction, found {type(prediction).__name__}")
    if prediction.values.dtype in (torch.float16, torch.bfloat16):  # a network may compute in these; a bound may not
        prediction = prediction.replace(prediction.values.float())
    values, width, n = prediction.values, prediction.width(process), int(where.sum())
    if not values.is_floating_point():
        raise ValueError(f"a prediction must hold floating-point numbers, found {values.dtype}")
    full = (*x_t.shape, width)
    if values.shape == full:
        return prediction.replace(values.flatten(0, 1) if everywhere else values[where])
    if values.shape == (n, width):
        return prediction
    raise ValueError(
        f"a denoiser asked at {n} of {x_t.shape[0]} × {x_t.shape[1]} positions must return a "
        f"{type(prediction).__name__} of shape {[n, width]} or {list(full)}, found {list(values.shape)}"
    )


def clean_at(denoiser: Denoiser, process: Process, x_t: Tensor, t: Tensor, where: Tensor) -> Tensor:
    """log p(x_0 | x_t) at the n positions `where`: x_t, where [B, L], t [B] → [n, K]."""
    prediction = ask(denoiser, process, x_t, t, where)
    return prediction.clean(process, x_t[where], t[:, None].expand(x_t.shape)[where])

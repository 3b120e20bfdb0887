"""The denoiser interface `(x_t, t, where=None) -> Prediction`, and the functions that call a denoiser and check its output."""

from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from unnoise.prediction import MeanPrediction, Prediction, TokenPrediction
from unnoise.process.process_base import Process
from unnoise.process.state import LATEST, ProcessBase, position_times


class Denoiser(Protocol):
    """x_t: [B, L] long, t: [B] or [B, L] float, where: [B, L] bool or None.

    Without `where` the prediction has shape [B, L, ·]. With `where` only those n positions are needed, in row-major order:
    [n, ·]; a denoiser that computes all positions may return [B, L, ·].
    """

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> Prediction: ...


def predict(denoiser: Denoiser, process: Process, x_t: Tensor, t: Tensor, where: Tensor) -> TokenPrediction:
    """Return the denoiser's prediction at the n positions `where`, after checking its shape: [n, ·].

    Times are float64 throughout the package; the denoiser receives them in torch's default dtype.
    """
    count = int(where.sum())
    chosen = None if count == where.numel() else where
    prediction = denoiser(x_t, t.clamp_max(LATEST).to(torch.get_default_dtype()), chosen)
    if not isinstance(prediction, TokenPrediction):
        raise ValueError(
            f"a denoiser must return a MeanPrediction, ScorePrediction or RatioPrediction, found {type(prediction).__name__}"
        )
    return prediction.selected(process, tuple(x_t.shape), chosen, count)


def predict_clean(denoiser: Denoiser, process: Process, x_t: Tensor, t: Tensor, where: Tensor) -> Tensor:
    """Return log p(x_0 | x_t) at the n positions `where`: x_t, where [B, L], t [B] or [B, L] → [n, K]."""
    prediction = predict(denoiser, process, x_t, t, where)
    return prediction.clean(process, x_t[where], position_times(t, x_t)[where])


@dataclass
class SamplingDenoiser:
    """The denoiser as samplers call it: only where a prediction is needed, with temperature and top-p applied to the mean.

    With `independent_rows`, rows in which nothing moves are not evaluated. With `time_free`, which implies that, the denoiser
    ignores t, so rows that have not changed since their last evaluation at the same positions are not evaluated again. Neither
    changes the predictions. `nfe` is the number of function evaluations, counted in rows.
    """

    state_space: ProcessBase
    process: Process
    """the same object, for samplers that require a process over tokens"""
    denoiser: Denoiser
    length: int
    """maximum sequence length"""
    time_free: bool = False
    temperature: float = 1.0
    top_p: float = 1.0
    track_confidence: bool = True
    """whether `confidence` is updated"""
    mean_for: str | None = None
    """name of the sampler if it requires a mean"""
    independent_rows: bool = False
    """whether the prediction of a row depends only on that row"""
    nfe: int = field(default=0, init=False)
    _last: tuple[Tensor, Tensor, Tensor, TokenPrediction] | None = field(default=None, init=False)  # x, t, where, prediction
    _own: TokenPrediction | None = field(default=None, init=False)  # the last one without temperature and top-p
    _read: tuple[Tensor, Tensor] | None = field(default=None, init=False)  # x and where of each row at its last evaluation
    _known: dict[int, TokenPrediction] = field(default_factory=dict, init=False)  # its prediction, by row number

    def predict(self, x: Tensor, t: Tensor, where: Tensor) -> TokenPrediction:
        """Return the prediction at the n positions `where`: [n, ·]."""
        if self.time_free:
            prediction = self._call_changed(x, t, where)
        elif self.independent_rows:
            prediction = self._call_rows(x, t, where, where.any(1))
        else:
            prediction = self._call(x, t, where)
        self._own = prediction
        if isinstance(prediction, MeanPrediction) and not self.temperature == self.top_p == 1:
            prediction = prediction.shaped(self.temperature, self.top_p)
        self._last = (x, t, where, prediction) if self.track_confidence else None
        return prediction

    def clean(self, x: Tensor, t: Tensor, where: Tensor) -> Tensor:
        """Return log p(x_0 | x_t) at the n positions `where`: [n, K]."""
        return self.predict(x, t, where).clean(self.process, x[where], position_times(t, x)[where])

    def own(self, x: Tensor, t: Tensor, where: Tensor) -> Tensor:
        """Return log p(x_0 | x_t) without temperature and top-p, at the positions of the last call of `clean`: [n, K]."""
        assert self._own is not None
        return self._own.clean(self.process, x[where], position_times(t, x)[where])

    def confidence(self, x: Tensor, before: Tensor) -> Tensor:
        """Return the confidences `before` [B, L], updated by the last prediction and the tokens x that were sampled from it."""
        if self._last is None:
            return before
        read, t, where, prediction = self._last
        self._last = None
        log_p = prediction.clean(self.process, read[where], position_times(t, x)[where])
        token = x[where]
        chosen = log_p.gather(-1, token.clamp_max(self.process.vocab - 1)[:, None])[:, 0]
        log_c = torch.where(token < self.process.vocab, chosen, log_p.amax(-1))
        return before.masked_scatter(where, log_c.exp().to(before.dtype))

    def forget(self) -> None:
        """Exclude the last prediction from `confidence`, because x was not sampled from it."""
        self._last = None

    def _call_changed(self, x: Tensor, t: Tensor, where: Tensor) -> TokenPrediction:
        """Return the prediction at `where`, evaluating only the rows that have changed."""
        needed = where.any(1)
        seen, there = (torch.full_like(x, -1), where) if self._read is None else self._read
        changed = needed & ((x != seen) | (where != there)).any(1)
        if bool(changed.any()):
            self._read = torch.where(changed[:, None], x, seen), torch.where(changed[:, None], where, there)
            fresh = self._call_rows(x, t, where, changed)
            parts = fresh.values.split(where.sum(1)[changed].tolist())
            for row, values in zip(changed.nonzero()[:, 0].tolist(), parts, strict=True):
                self._known[row] = fresh.replace(values)
            if bool((changed == needed).all()):
                return fresh
        known = [self._known[row] for row in needed.nonzero()[:, 0].tolist()]
        return known[0].replace(torch.cat([one.values for one in known]))

    def _call_rows(self, x: Tensor, t: Tensor, where: Tensor, rows: Tensor) -> TokenPrediction:
        """Return the prediction at the positions `where` of the given rows, [B] bool."""
        return self._call(x, t, where) if bool(rows.all()) else self._call(x[rows], t[rows], where[rows])

    def _call(self, x: Tensor, t: Tensor, where: Tensor) -> TokenPrediction:
        self.nfe += len(x)
        prediction = predict(self.denoiser, self.process, x, t, where)
        if isinstance(prediction, MeanPrediction):
            return prediction
        if self.mean_for is not None:
            raise ValueError(
                f"{self.mean_for} needs a denoiser that returns a MeanPrediction, found {type(prediction).__name__}; "
                "use TweedieLeaping or EulerLeaping with a score"
            )
        if self.temperature != 1 or self.top_p != 1:
            raise ValueError(f"temperature and top_p shape a mean; with a {type(prediction).__name__} leave both at 1")
        return prediction

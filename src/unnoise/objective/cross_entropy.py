"""The plain cross-entropy of clean tokens at noised positions: not a bound, and the fastest way to learn."""

from torch import Tensor

from unnoise.objective.base import Denoising
from unnoise.prediction import TokenPrediction
from unnoise.process.base import Process


class CrossEntropy(Denoising):
    """L times the mean of −log p(x_0 | x_t) over noised positions, each weighted equally. Not a bound.

    initial_max_t: a curriculum for training. t is drawn from [start, max_t], where max_t rises from `initial_max_t` to 1 over
    the first `ramp` of the run: texts with little noise are learned first. With 1, the default, t is drawn from [start, 1].
    """

    def __init__(self, process: Process, start: float = 0.0, power: float = 1.0, initial_max_t: float = 1.0, ramp: float = 0.6):
        super().__init__(process, start, power)
        if not start < initial_max_t <= 1 or not 0 < ramp <= 1:
            raise ValueError(
                "a curriculum needs start < initial_max_t ≤ 1 and 0 < ramp ≤ 1, "
                f"found initial_max_t = {initial_max_t}, ramp = {ramp}"
            )
        self.initial_max_t, self.ramp, self.max_t = initial_max_t, ramp, 1.0

    def set_progress(self, progress: float) -> None:
        self.max_t = min(1.0, self.initial_max_t + (1 - self.initial_max_t) * progress / self.ramp)

    def times_at(self, v: Tensor) -> tuple[Tensor, Tensor]:
        t, weight = super().times_at(v)
        t = self.start + (t - self.start) * (self.max_t - self.start) / (1 - self.start)
        return t, weight / weight.mean() / self.process.active_share(t).mean()

    def term(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        return self.process.surprise(prediction, x, x_t, t)

"""Predictions of DDPM, a vector for each position (ε, x_0 or μ̃_t), and the parameterization that makes them of a network."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from unnoise.denoiser import Denoiser
from unnoise.families.ddpm.process import Ddpm
from unnoise.families.gaussian_noise import rows
from unnoise.network.parameterization import Parameterization
from unnoise.prediction import Prediction
from unnoise.process.state import StateSpace


@dataclass(frozen=True)
class DdpmPrediction(Prediction):
    """ε̂, x̂_0 or μ_θ(x_t, t), whichever is the target of the process: value [B, L, D]."""

    value: Tensor


def predicted(denoiser: Denoiser, process: Ddpm, z: Tensor, step: Tensor) -> Tensor:
    """Return the denoiser's answer at x_t = z, checked: [B, L, D], [B] long → [B, L, D] float64."""
    prediction = denoiser(z, process.time_of(step).to(torch.get_default_dtype()))
    if not isinstance(prediction, DdpmPrediction) or prediction.value.shape != z.shape:
        raise ValueError(f"a denoiser of ddpm must return a DdpmPrediction of shape {list(z.shape)}")
    return prediction.value.to(z.dtype)


class DdpmParameterization(Parameterization):
    """The network's output f as a prediction: ε̂ = f, x̂_0 = f, or μ_θ = x_t + √β_t·f.

    μ̃_t lies near x_t, so for that target the network gives the step to it, in units of the noise of the step. Guidance w is
    f(∅) + w·(f(label) − f(∅)) (arXiv:2207.12598).
    """

    prediction: ClassVar[type[Prediction]] = DdpmPrediction
    takes_guidance: ClassVar[bool] = True
    process: Ddpm

    def __init__(self, network: nn.Module, process: StateSpace, length: int, labels: int = 0):
        if not isinstance(process, Ddpm):
            raise ValueError(f"DdpmParameterization needs a Ddpm process, found {type(process).__name__}")
        super().__init__(network, process, length, labels)

    @classmethod
    def network_config(cls, process: StateSpace, length: int, time_free: bool) -> dict[str, Any]:
        assert isinstance(process, Ddpm)
        return super().network_config(process, length, time_free) | {"outputs": process.width}

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> DdpmPrediction:
        found = self.vectors(x_t, t)
        if self.guidance != 1 and self.label is not None:
            unconditional = self.condition(None).vectors(x_t, t)
            found = unconditional + self.guidance * (found - unconditional)
        if self.process.target == "mean":
            beta = self.process.betas[self.process.step_of(t) - 1]
            found = x_t + rows(beta.sqrt(), x_t) * found
        return DdpmPrediction(found)

    def vectors(self, z: Tensor, t: Tensor) -> Tensor:
        """Return the network's output f: [B, L, D], [B] → [B, L, D]."""
        return self.output(self.process.observe(z), t, None).to(z.dtype)

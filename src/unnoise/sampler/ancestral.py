"""Ancestral sampling from the reverse step p(x_s | x_t) of the model, Ψ sampling, and sampling with float32 Gumbel noise."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unnoise.denoiser import SamplingDenoiser
from unnoise.prediction import TokenPrediction
from unnoise.process.process_base import Process
from unnoise.rng import Generator, uniform
from unnoise.sampler.sampler_base import DrawingSampler, Frame, GridSampler
from unnoise.sampler.unmasking import MaskedSampler

LEVELS = 2**24  # values of a float32 uniform number
TINY = 1e-10


@dataclass(frozen=True)
class Psi(DrawingSampler):
    """A step from t to s by κ·p(x_s | x_t) + (1 − κ)·Σ_{x_0} p(x_0 | x_t) q(x_s | x_0), at every position (arXiv:2602.21185).

    Given x_0 both parts have the marginal q(x_s | x_0). An exact model therefore keeps the marginal of each position at every
    κ, and its joint distribution as steps grow and κ goes to 1 with them. κ = 1 is ancestral sampling.

    kappa: weight κ of the reverse step, 0 to 1.
    """

    kappa: float = 0.98
    mean_only: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.kappa <= 1:
            raise ValueError(f"kappa must lie in [0, 1], found {self.kappa}")

    @property
    def keeps_distribution(self) -> bool:
        return self.kappa == 1

    @property
    def distribution(self) -> str:
        return "keeps the model's distribution as steps grow and kappa goes to 1 with them"

    def weights(self, process: Process, prediction: TokenPrediction, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        clean = prediction.clean(process, x_t, t).double().exp()
        if s is None:
            return clean
        reverse = prediction.reverse(process, x_t, s, t).double().exp()
        return self.kappa * reverse + (1 - self.kappa) * process.push(clean, s)

    def step(
        self, denoiser: SamplingDenoiser, x: Tensor, s: Tensor | None, t: Tensor, free: Tensor, generator: Generator
    ) -> Tensor:
        where = free if s is not None else denoiser.process.active(x) & free
        return self.draw_at(where, denoiser, x, s, t, generator=generator)


@dataclass(frozen=True)
class Ancestral(DrawingSampler):
    """x_s ~ p(x_s | x_t) from a mean, on a uniform or cosine grid of times (Multinomial Diffusion, D3PM, MDLM, MD4).

    Samples follow the model's distribution, the one that the bound with the same steps describes. If the times of the jumps are
    independent of their targets, they are sampled first; the denoiser is then called only in steps with jumps, and only there.
    """

    mean_only: ClassVar[bool] = True

    @property
    def keeps_distribution(self) -> bool:
        return True

    def walk(
        self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator, times: list[float]
    ) -> Iterator[Frame]:
        jumps = denoiser.process.jump_steps(x, free, times, generator)
        if jumps is None:
            yield from super().walk(denoiser, x, free, generator, times)
            return
        counts = torch.bincount(jumps.flatten(), minlength=len(times)).tolist()
        confidence = torch.zeros(x.shape, device=x.device)
        for number, (t, s) in enumerate(zip(times, [*times[1:], 0.0], strict=True)):
            if counts[number]:
                at = torch.full((len(x),), t, dtype=torch.float64, device=x.device)
                x = self.step(denoiser, x, None, at, jumps == number, generator=generator)
                confidence = denoiser.confidence(x, confidence)
            yield Frame(s, x, confidence)

    def weights(self, process: Process, prediction: TokenPrediction, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        log_p = prediction.clean(process, x_t, t) if s is None else prediction.reverse(process, x_t, s, t)
        return log_p.double().exp()


@dataclass(frozen=True)
class Float32Gumbel(MaskedSampler, GridSampler):
    """Ancestral sampling of masked noise with float32 Gumbel noise, to reproduce results of papers that used it.

    Each step samples a token, or the mask, as argmax of p_y / (10⁻¹⁰ − log(u_y + 10⁻¹⁰)) with float32 uniforms u = k·2⁻²⁴. Rare
    tokens need u > 1 − 2⁻²⁴ and appear too seldom, so samples are less diverse than the model and score better than they should
    (docs/precision.md). No sampler uses this by default.
    """

    @property
    def keeps_distribution(self) -> bool:
        return False

    @property
    def distribution(self) -> str:
        return "does not keep the model's distribution: float32 Gumbel noise loses rare tokens, an artefact"

    def step(
        self, denoiser: SamplingDenoiser, x: Tensor, s: Tensor | None, t: Tensor, free: Tensor, generator: Generator
    ) -> Tensor:
        where = denoiser.process.active(x) & free
        if not bool(where.any()):
            return x
        prediction = denoiser.predict(x, t, where)
        x_t, at = x[where], t[:, None].expand(x.shape)[where]
        if s is None:
            log_p = prediction.clean(denoiser.process, x_t, at)
        else:
            log_p = prediction.reverse(denoiser.process, x_t, s[:, None].expand(x.shape)[where], at)
        places = where[..., None].expand(*where.shape, log_p.shape[-1])
        u = uniform(places.shape, x.device, generator, places).view(log_p.shape)
        return x.masked_scatter(where, gumbel_argmax(log_p.exp(), u))


def gumbel_argmax(probs: Tensor, u: Tensor) -> Tensor:
    """Compute argmax_y p_y / (10⁻¹⁰ − log(u_y + 10⁻¹⁰)) in float32, u rounded down to a multiple of 2⁻²⁴: [n, S] → [n] long."""
    coarse = ((u * LEVELS).floor() / LEVELS).float()
    return (probs.float() / (TINY - (coarse + TINY).log())).argmax(-1)

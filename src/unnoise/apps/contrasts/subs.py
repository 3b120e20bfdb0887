"""`subs`: the masked bound with probability left on the mask, and with the SUBS parameterization."""

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from unnoise.apps.contrasts.base import HELD_OUT, Contrast, Found, Progress, moments, number_ticks, small_model, train, windows
from unnoise.apps.plots.style import legend, pictures, series
from unnoise.denoiser import Denoiser, predict
from unnoise.method_table import Method, method
from unnoise.model.model import Model
from unnoise.network.parameterization import MeanParameterization, Parameterization
from unnoise.objective import Elbo
from unnoise.prediction import MeanPrediction, Prediction, TokenPrediction
from unnoise.process import Masked, Process
from unnoise.process.state import ProcessBase

STEPS = 16
CURVES = {
    "mask": "K + 1 outputs, trained as they are",
    "read": "the same network, read with SUBS",
    "subs": "K outputs, trained with SUBS",
}


def step_loss(m: Tensor, own: Tensor, alpha_s: Tensor, alpha_t: Tensor) -> Tensor:
    """Return KL(q(x_s | x_t = mask, x_0) ‖ q(x_s | x_t = mask, x_θ)) with m = ⟨x_θ, mask⟩ and own = ⟨x_θ, x_0⟩.

    (α_s−α_t)/(1−α_t) · log[ (α_t m + 1−α_t) / ((1−α_t) own) ]
    + (1−α_s)/(1−α_t) · log[ (1−α_s)(α_t m + 1−α_t) / ((1−α_t)(α_s m + 1−α_s)) ].
    """
    noise_s, noise_t = 1 - alpha_s, 1 - alpha_t
    total = alpha_t * m + noise_t
    stays = torch.where(noise_s > 0, noise_s * total / (noise_t * (alpha_s * m + noise_s)), torch.ones_like(total))
    return (alpha_s - alpha_t) / noise_t * (total / (noise_t * own)).log() + noise_s / noise_t * stays.log()


def price(m: Tensor, alpha_s: Tensor, alpha_t: Tensor) -> Tensor:
    """Return the part of `step_loss` that is due to m: KL(c ‖ c_θ) of two coins, which is zero without probability on the mask.

    The coins reveal a token with probability c = (α_s−α_t)/(1−α_t), and c_θ = (α_s−α_t)(1−m)/(1−α_t+α_t m).
    """
    c = (alpha_s - alpha_t) / (1 - alpha_t)
    c_theta = (alpha_s - alpha_t) * (1 - m) / (1 - alpha_t + alpha_t * m)
    stays = torch.where(c < 1, (1 - c) / torch.where(c < 1, 1 - c_theta, torch.ones_like(c)), torch.ones_like(c))
    return c * (c / c_theta).log() + (1 - c) * stays.log()


class MaskPrediction(TokenPrediction):
    """Distribution x_θ over K + 1 states, including the mask, plugged into q(x_s | x_t, x_θ) unchanged.

    log_probs: [B, L, K + 1], or [n, K + 1].
    """

    def __init__(self, log_probs: Tensor):
        self.log_probs = log_probs

    @property
    def values(self) -> Tensor:
        return self.log_probs

    def width(self, process: Process) -> int:
        return process.states

    def replace(self, values: Tensor) -> "MaskPrediction":
        return MaskPrediction(values)

    def subs(self) -> MeanPrediction:
        """Return the same prediction under SUBS: no probability on the mask, the rest renormalized."""
        return MeanPrediction.from_logits(self.log_probs[..., :-1])

    def ratios(self, process: Process, x_t: Tensor, t: Tensor) -> Tensor:
        """Return log s_y = log q(y | x_θ)/q(mask | x_θ) = log α x_θ,y / (1 − α + α x_θ,mask) at a mask."""
        alpha, noise = (value[..., None] for value in (process.schedule.alpha(t), process.schedule.noise(t)))
        total = noise + alpha * self.log_probs[..., -1:].exp()
        return pad(self.log_probs[..., :-1] + (alpha / total).log(), (0, 1))

    def reverse(self, process: Process, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """Return log p(x_s | x_t): a mask becomes y with (α_s−α_t) x_θ,y and stays with α_s x_θ,mask + 1−α_s, normalized.

        A token stays in each step that ends above s = 0. In the last step, p(x_0 | x_t) = x_θ also at tokens (no carry-over).
        """
        alpha_s, alpha_t = (process.schedule.alpha(time)[..., None] for time in (s, t))
        probs = self.log_probs.exp()
        joint = torch.cat([(alpha_s - alpha_t) * probs[..., :-1], alpha_s * probs[..., -1:] + 1 - alpha_s], -1)
        at_mask = joint.clamp_min(1e-300 if joint.dtype == torch.float64 else 1e-37).log() - joint.sum(-1, keepdim=True).log()
        certain = torch.full_like(self.log_probs, -torch.inf).scatter(-1, x_t[..., None], 0.0)
        at_token = torch.where((s > 0)[..., None], certain, self.log_probs)
        return torch.where((x_t == process.states - 1)[..., None], at_mask.to(at_token.dtype), at_token)

    def clean(self, process: Process, x_t: Tensor, t: Tensor) -> Tensor:
        """Return log p(x_0 | x_t) over the K tokens, under SUBS."""
        return self.subs().clean(process, x_t, t)


class MaskParameterization(Parameterization):
    """Parameterization x_θ = softmax of K + 1 outputs, of which one is the mask's."""

    prediction = MaskPrediction

    @classmethod
    def network_config(cls, process: ProcessBase, length: int, time_free: bool) -> dict[str, Any]:
        return super().network_config(process, length, time_free) | {"outputs": process.states}

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MaskPrediction:
        return MaskPrediction(torch.log_softmax(self.run(x_t, t, where), -1))


class MaskElbo(Elbo):
    """Bound in T steps of a `MaskPrediction`. Unlike with SUBS, unmasked tokens have a loss in the last step."""

    def positions(self, x_t: Tensor) -> Tensor:
        return torch.ones_like(x_t, dtype=torch.bool)


class ReadWithSubs:
    """Denoiser with K + 1 outputs, to which SUBS is applied."""

    def __init__(self, denoiser: Denoiser, process: Process):
        self.denoiser, self.process = denoiser, process

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> Prediction:
        at = torch.ones_like(x_t, dtype=torch.bool) if where is None else where
        prediction = predict(self.denoiser, self.process, x_t, t, at)
        assert isinstance(prediction, MaskPrediction)
        return prediction.subs()


def methods() -> dict[str, Method]:
    """Return the two methods, with the bound in T steps as loss."""
    subs = replace(
        method("mdlm:eps=0"),
        objective=lambda process: Elbo(process, steps=STEPS),
        bound=lambda process: Elbo(process, steps=STEPS),
    )
    mask = replace(
        subs,
        parameterization=MaskParameterization,
        objective=lambda process: MaskElbo(process, steps=STEPS),
        bound=lambda process: MaskElbo(process, steps=STEPS),
    )
    assert subs.parameterization is MeanParameterization
    return {"mask": mask, "subs": subs}


@torch.no_grad()
def held_out_bits(model: Model, bound: Elbo, denoiser: Denoiser, x: Tensor) -> float:
    """Return the bound in bits per character, over all steps t = 1/T … 1, with one x_t for each text and step."""
    generator = torch.Generator().manual_seed(0)
    nats = 0.0
    for i in range(1, STEPS + 1):
        t = torch.full((len(x),), i / STEPS, dtype=torch.float64)
        x_t = model.process.corrupt(x, t, generator)
        nats += float(bound.at(denoiser, x, x_t, t).mean())
    return nats / x.shape[1] / math.log(2)


@torch.no_grad()
def mask_probability(model: Model, x: Tensor) -> float:
    """Return the mean of ⟨x_θ, mask⟩ over the masks of half-masked texts."""
    t = torch.full((len(x),), 0.5, dtype=torch.float64)
    x_t = model.process.corrupt(x, t, torch.Generator().manual_seed(0))
    where = model.process.active(x_t)
    return float(predict(model.denoiser, model.process, x_t, t, where).values[:, -1].exp().mean())


@dataclass(kw_only=True)
class MaskProbability(Contrast):
    """Settings of `subs`: `updates` of each network."""

    title = "The masked bound with and without SUBS"
    about = """\
Let x_θ be the network's distribution over K tokens and the mask m. Plugged into the posterior, at x_t = m the loss of a step is
L_2 = (α_s−α_t)/(1−α_t) · log[(α_t⟨x_θ,m⟩ + 1−α_t) / ((1−α_t)⟨x_θ,x⟩)]
    + (1−α_s)/(1−α_t) · log[(1−α_s)(α_t⟨x_θ,m⟩ + 1−α_t) / ((1−α_t)(α_s⟨x_θ,m⟩ + 1−α_s))].
SUBS builds two facts into x_θ. Zero masking: x_0 is never a mask, so ⟨x_θ,m⟩ = 0. Carry-over: x_t ≠ m is x_0 already.
With ⟨x_θ,m⟩ = 0 the second logarithm is 0 and the first −log⟨x_θ,x⟩: the cross-entropy at masks, weight (α_s−α_t)/(1−α_t).
What probability on the mask costs is exact: L_2 is the loss of the same x_θ under SUBS, plus KL(c ‖ c_θ) of two coins, the true
probability c = (α_s−α_t)/(1−α_t) to be revealed in this step, and c_θ = (α_s−α_t)(1−⟨x_θ,m⟩)/(1−α_t+α_t⟨x_θ,m⟩).
The KL is ≥ 0, so SUBS never makes a bound worse. Without carry-over the last step also costs −log⟨x_θ,x⟩ at tokens that are not
masked: the network must learn to copy its input. Both are learned within some hundred updates, but every update spends
gradient and noise on them. Upper picture: the price against ⟨x_θ,m⟩. Lower: two small networks on the same batches, T = 16."""
    updates: int = 400

    def measure(self, progress: Progress) -> Found:
        m = torch.linspace(0.01, 0.9, 90, dtype=torch.float64)
        found: Found = {"steps": STEPS, "probability": m.tolist(), "price": {}}
        for i in (1, 4, 8, 15):
            alpha_s, alpha_t = (torch.full_like(m, 1 - j / STEPS) for j in (i - 1, i))
            found["price"][f"{i}/{STEPS}"] = price(m, alpha_s, alpha_t).tolist()
        found |= {"updates": moments(self.updates), "on mask": [], **{name: [] for name in CURVES}}
        for half, (name, chosen) in enumerate(methods().items()):
            model = small_model(chosen, self.seed)
            assert isinstance(model.process, Masked)
            x, plain = windows(model, "test", HELD_OUT), Elbo(model.process, steps=STEPS)
            for update in train(model, chosen.objective(model.process), self.updates, self.seed):
                progress((half + update / self.updates) / 2)
                if update not in found["updates"]:
                    continue
                bound = chosen.bound(model.process)
                assert isinstance(bound, Elbo)
                found[name].append(held_out_bits(model, bound, model.denoiser, x))
                if name == "mask":
                    found["read"].append(held_out_bits(model, plain, ReadWithSubs(model.denoiser, model.process), x))
                    found["on mask"].append(mask_probability(model, x))
        return found

    def lines(self, found: Found) -> list[str]:
        lines = ["bits per character, an upper bound in 16 steps, held-out text", ""]
        lines.append("updates   K + 1 outputs   read with SUBS   trained with SUBS   ⟨x_θ, m⟩")
        for i, update in enumerate(found["updates"]):
            lines.append(
                f"{update:7d}   {found['mask'][i]:13.3f}   {found['read'][i]:14.3f}   {found['subs'][i]:17.3f}   "
                f"{found['on mask'][i]:8.5f}"
            )
        return lines

    def draw(self, found: Found, path: Path, *, dark: bool = False) -> None:
        with pictures(path, height=6.0, rows=2, share_x=False, dark=dark) as (above, below):
            for i, (t, values) in enumerate(found["price"].items()):
                above.plot(found["probability"], values, label=f"t = {t}", **series(i, markers=False))
            above.set(xlabel="⟨x_θ, m⟩, probability on the mask", ylabel="nats at a mask", yscale="log", ylim=(1e-4, 10))
            above.yaxis.set_major_formatter("{x:g}")
            above.set_title("price of probability on the mask in one step of 16, KL(c ‖ c_θ)")
            legend(above)
            for i, (name, label) in enumerate(CURVES.items()):
                below.plot(found["updates"], found[name], label=label, **series(i))
            below.set_xscale("symlog", linthresh=1)
            number_ticks(below, found["updates"])
            below.set(xlabel="updates", ylabel="bits per character", title="bound of small networks on held-out text")
            below.set_ylim(0, None)
            legend(below)

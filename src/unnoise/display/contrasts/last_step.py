"""`last-step`: p(x_0 | x_1) as the mean itself, or as the normalised product with q(x_1 | x_0)."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser
from unnoise.display.contrasts.base import Contrast, Found, Progress
from unnoise.display.contrasts.language import ExactMean, Language, all_texts
from unnoise.display.style import legend, look, picture, series
from unnoise.objective import Elbo
from unnoise.prediction import MeanPrediction
from unnoise.process import Uniform
from unnoise.schedule import Linear

VOCAB, LENGTH = 4, 3


class SwitchedMean:
    """μ = p(x_0^i | x_t) at t ≤ 1/T and p(x_0^i | x_t^{≠i}) later: the prediction that training with μ as last step gives."""

    def __init__(self, language: Language, process: Uniform, steps: int):
        self.own, self.others = (ExactMean(language, process, own=own) for own in (True, False))
        self.steps = steps

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        last = (t < 1.5 / self.steps)[:, None, None]
        log_mu = torch.where(last, self.own(x_t, t).log_probs, self.others(x_t, t).log_probs)
        return MeanPrediction(log_mu if where is None else log_mu[where])


def mean_bound(language: Language, process: Uniform, denoiser: Denoiser, steps: int) -> list[float]:
    """Return the terms of E_{p_data}[bound], KL(q(x_s|x_t, x_0) ‖ p(x_s|x_t)) for t = 1/T … 1, by sums over all (x_0, x_t)."""
    bound, noisy = Elbo(process, steps=steps), all_texts(process.states, language.length)
    n, m = len(language.x), len(noisy)
    x, x_t = language.x.repeat_interleave(m, 0), noisy.repeat(n, 1)
    terms = []
    for i in range(1, steps + 1):
        t = torch.full((m,), i / steps, dtype=torch.float64)
        weight = (language.likelihoods(process, noisy, t).prod(-1) * language.p).T.flatten()  # q(x_t | x_0) p(x_0)
        known = weight > 0
        nats = bound.at(denoiser, x[known], x_t[known], t.repeat(n)[known])
        terms.append(float((weight[known] * nats).sum()))
    return terms


@dataclass(kw_only=True)
class LastStep(Contrast):
    """Settings of `last-step`: T = 1, 2, 4, … ≤ `steps`."""

    title = "The last step of Multinomial Diffusion: the bound in T steps"
    about = """\
Multinomial Diffusion plugs x̂_0 = μ(x_t, t) into the posterior: p(x_{t−1} | x_t) = q(x_{t−1} | x_t, x̂_0) for t ≥ 2, and defines
the last step as p(x_0 | x_1) = μ(x_1, 1). With t = 1 in the first formula the last step would be the normalised product
p(x_0 | x_1) = q(x_1|x_0) μ(x_0) / Σ_k q(x_1|k) μ_k, and the authors' code computes this product.
Both are distributions over x_0, so both give a bound: −log p(x_0) ≤ Σ_{t≥2} KL + E −log p(x_0|x_1) + KL(q(x_T|x_0) ‖ p(x_T)).
They are bounds of two different models, with two different best predictions. In every product step μ must be
p(x_0^i | x_t^{≠i}), from the other positions, since q(x_t | x_0) adds the position's own token. As p(x_0 | x_1) itself it must
be p(x_0^i | x_1), with that token. At its own best prediction each form has the same value: both then are p(x_0^i | x_1).
A network that has learned one form and is evaluated by the other is far off: without its own token, which is x_0 with
probability near 1, the last step costs about as much as predicting every token from the others.
The default here is the product; `multinomial:last_step=mean` is the definition of the paper."""
    steps: int = 32

    def measure(self, progress: Progress) -> Found:
        language = Language(VOCAB, LENGTH, self.seed)
        grid = [2**k for k in range(int(math.log2(self.steps)) + 1)]
        found: Found = {"steps": grid, "entropy": language.entropy, "product": [], "mean": [], "mismatch": []}
        for steps in grid:
            product = Uniform(VOCAB, Linear(), reverse="plug-in")
            mean = Uniform(VOCAB, Linear(), reverse="plug-in", mean_until=1 / steps)
            others = ExactMean(language, product, own=False)
            for name, process, denoiser in (
                ("product", product, others),
                ("mean", mean, SwitchedMean(language, mean, steps)),
                ("mismatch", mean, others),
            ):
                terms = mean_bound(language, process, denoiser, steps)
                found[name].append({"bound": sum(terms), "last": terms[0]})
            progress(steps / sum(grid))
        return found

    def lines(self, found: Found) -> list[str]:
        lines = [
            f"entropy {found['entropy']:.3f} nats; bound (of which the last step), nats",
            "",
            "   T   product           mean itself       mean itself, network of the product",
        ]
        for i, steps in enumerate(found["steps"]):
            cells = [
                f"{found[name][i]['bound']:6.3f} ({found[name][i]['last']:6.3f})" for name in ("product", "mean", "mismatch")
            ]
            lines.append(f"{steps:4d}   " + "   ".join(cells))
        return lines

    def draw(self, found: Found, path: Path, *, dark: bool = False) -> None:
        labels = {
            "mismatch": "μ itself, with the network\nof the product",
            "product": "product q(x_1|x_0)·μ,\nits own best network",
            "mean": "μ itself, its own best\nnetwork",
        }
        with picture(path, height=3.8, dark=dark) as axes:
            for i, (name, label) in enumerate(labels.items()):
                axes.plot(found["steps"], [row["bound"] for row in found[name]], label=label, **series(i))
            axes.axhline(found["entropy"], color=look(dark).dim, linewidth=0.8, label="entropy of the language")
            axes.set_xscale("log")
            axes.set_xticks(found["steps"], [str(steps) for steps in found["steps"]])
            axes.minorticks_off()
            axes.set(xlabel="T, steps", ylabel="bound, nats", title=self.title)
            legend(axes)

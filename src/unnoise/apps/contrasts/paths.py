"""Contrasts of the bound in T steps.

last-step: p(x_0 | x_1) as the mean itself, or as the normalized product with q(x_1 | x_0).
path-estimate: the bound by log ratios of paths or by KL terms, along whole paths or one step at a time.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from unnoise.apps.contrasts.base import Contrast, ExactMean, Found, Language, Progress, all_texts, number_ticks
from unnoise.apps.plots.style import legend, look, picture, pictures, series
from unnoise.denoiser import Denoiser, predict
from unnoise.objective import Elbo
from unnoise.prediction import MeanPrediction
from unnoise.process import Masked, Process, Uniform
from unnoise.process.process_base import gather
from unnoise.schedule import Linear

STEP_VOCAB, STEP_LENGTH = 4, 3


class SwitchedMean:
    """Best prediction with μ as the last step: p(x_0^i | x_t) at t ≤ 1/T, and p(x_0^i | x_t^{≠i}) at later times."""

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
the last step as p(x_0 | x_1) = μ(x_1, 1). With t = 1 in the first formula the last step would be the normalized product
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
        language = Language(STEP_VOCAB, STEP_LENGTH, self.seed)
        grid = [2**k for k in range(int(math.log2(self.steps)) + 1)]
        found: Found = {"steps": grid, "entropy": language.entropy, "product": [], "mean": [], "mismatch": []}
        for steps in grid:
            product = Uniform(STEP_VOCAB, Linear(), reverse="plug-in")
            mean = Uniform(STEP_VOCAB, Linear(), reverse="plug-in", mean_until=1 / steps)
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
            number_ticks(axes, found["steps"])
            axes.set(xlabel="T, steps", ylabel="bound, nats", title=self.title)
            legend(axes)


VOCAB, LENGTH, ERROR = 3, 4, 0.5
KINDS = {
    "step": "one step, T·(log q − log p)",
    "step KL": "one step, T·KL",
    "path KL": "whole path, sum of KL",
    "path": "whole path, log q − log p",
}


def processes() -> dict[str, Process]:
    """Return the processes of the two panels."""
    return {"uniform": Uniform(VOCAB, Linear(), reverse="plug-in"), "masked": Masked(VOCAB, Linear())}


def estimates(process: Process, denoiser: Denoiser, x: Tensor, steps: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Return four estimates, [B] each, of −E_q[log p(x_0 … x_T) − log q(x_1 … x_T | x_0)] from paths x_1 … x_T ~ q(· | x_0).

    path: log q(x_1 … x_T | x_0) − log p(x_0 … x_T) = −log p(x_T) + Σ_t [ log q(x_t | x_{t−1}) − log p(x_{t−1} | x_t) ].
    path KL: KL(q(x_T | x_0) ‖ p(x_T)) + Σ_t KL(q(x_{t−1} | x_t, x_0) ‖ p(x_{t−1} | x_t)).
    step, step KL: T times the term of one uniformly drawn t, in place of the sum.
    """
    bound, everywhere = Elbo(process, steps=steps), torch.ones_like(x, dtype=torch.bool)
    earlier, ratios, kls = x, [], []
    for i in range(1, steps + 1):
        s, t = (torch.full(x.shape, j / steps, dtype=torch.float64) for j in (i - 1, i))
        x_t = process.noised(earlier, s, t, generator)
        log_q = gather(process.row(earlier, s, t), x_t).log()
        prediction = predict(denoiser, process, x_t, t[:, 0], everywhere)
        log_p = prediction.reverse(process, x_t.flatten(), s.flatten(), t.flatten()).view(*x.shape, -1)
        ratios.append((log_q - gather(log_p, earlier)).sum(-1))
        kls.append(bound.at(denoiser, x, x_t, t[:, 0]))
        earlier = x_t
    chosen = torch.randint(steps, (1, len(x)), generator=generator)
    found = {}
    for name, terms, last in (
        ("", torch.stack(ratios), -process.stationary()[earlier].log().sum(-1)),
        (" KL", torch.stack(kls), process.noise_kl(x).sum(-1)),
    ):
        found |= {f"path{name}": terms.sum(0) + last, f"step{name}": steps * terms.gather(0, chosen)[0] + last}
    return found


def exact_bound(process: Process, denoiser: Denoiser, x: Tensor, steps: int) -> float:
    """Return the mean of the estimates for one text x [L], as a sum over all x_t."""
    bound = Elbo(process, steps=steps)
    noisy = all_texts(process.states, len(x))
    clean = x.expand(noisy.shape)
    total = float(process.noise_kl(x).sum())
    for i in range(1, steps + 1):
        t = torch.full((len(noisy),), i / steps, dtype=torch.float64)
        q = gather(process.marginal(clean, t[:, None].expand(noisy.shape)), noisy).prod(-1)
        possible = q > 0
        total += float((q[possible] * bound.at(denoiser, clean[possible], noisy[possible], t[possible])).sum())
    return total


@dataclass(kw_only=True)
class PathEstimate(Contrast):
    """Settings of `path-estimate`: `draws` paths for each number of steps T = 1, 2, 4, … ≤ `steps`."""

    title = "Estimates of one bound: the standard deviation of a draw"
    about = """\
The bound on log p(x_0) is E_q[log p(x_0 … x_T) − log q(x_1 … x_T | x_0)], of log p(x_T) and log p(x_{t−1}|x_t)/q(x_t|x_{t−1}).
Training draws one t and multiplies by T, since the whole path needs T calls of the network. Drawn like this, the term is noisy:
a jump has a probability of order 1/T and a logarithm of order log T, so the deviation of T times the term grows like √T·log T.
Bayes' rule q(x_t|x_{t−1}) = q(x_{t−1}|x_t, x_0) q(x_t|x_0)/q(x_{t−1}|x_0) turns the same mean into
−KL(q(x_T|x_0) ‖ p(x_T)) − Σ_{t≥2} E KL(q(x_{t−1}|x_t, x_0) ‖ p(x_{t−1}|x_t)) + E log p(x_0|x_1).
Each KL is a sum over x_{t−1} in closed form: x_{t−1} is not drawn (Rao–Blackwell), and the deviation grows far less with T.
This holds for a term. Along a whole path the terms are not independent: log q − log p of a perfect model is −log p(x_0) on
every path, without any variance, and the sum of the KLs still varies with the path. For a good network the path estimate is the
better one for a given path, but it takes T calls; T independent terms of the KL form cost the same.
Measured on one text of a language of 3⁴ texts, with predictions that are wrong by a fixed random amount."""
    draws: int = 2000
    steps: int = 64

    def measure(self, progress: Progress) -> Found:
        grid = [2**k for k in range(int(math.log2(self.steps)) + 1)]
        language = Language(VOCAB, LENGTH, self.seed)
        text = language.x[language.p.argmax()]
        found: Found = {"steps": grid, "draws": self.draws, "text": text.tolist()}
        done, total = 0, 2 * sum(grid)
        for name, process in processes().items():
            denoiser = ExactMean(language, process, error=ERROR, seed=self.seed)
            rows = []
            for steps in grid:
                generator = torch.Generator().manual_seed(self.seed)
                values = estimates(process, denoiser, text.expand(self.draws, LENGTH), steps, generator)
                row = {"exact": exact_bound(process, denoiser, text, steps)}
                for kind, drawn in values.items():
                    row |= {f"{kind} mean": float(drawn.mean()), f"{kind} std": float(drawn.std())}
                rows.append(row)
                done += steps
                progress(done / total)
            found[name] = rows
        return found

    def lines(self, found: Found) -> list[str]:
        lines = ["mean ± standard deviation of one draw, nats", ""]
        lines.append(f"noise       T   exact   {''.join(f'{label:30s}' for label in KINDS.values())}".rstrip())
        for name in processes():
            for steps, row in zip(found["steps"], found[name], strict=True):
                cells = "".join(f"{row[f'{kind} mean']:7.3f} ± {row[f'{kind} std']:7.3f}{'':13s}" for kind in KINDS)
                lines.append(f"{name:8s} {steps:4d}  {row['exact']:6.3f}   {cells}".rstrip())
        return lines

    def draw(self, found: Found, path: Path, *, dark: bool = False) -> None:
        with pictures(path, height=5.6, rows=2, dark=dark) as panels:
            for axes, name in zip(panels, processes(), strict=True):
                for i, (kind, label) in enumerate(KINDS.items()):
                    deviations = [row[f"{kind} std"] for row in found[name]]
                    known = [(x, y) for x, y in zip(found["steps"], deviations, strict=True) if y > 1e-9]
                    axes.plot([x for x, _ in known], [y for _, y in known], label=label, **series(i))
                axes.set(xscale="log", yscale="log", ylabel="nats")
                axes.set_title(f"{name} noise: standard deviation of one draw, all with the same mean")
                axes.yaxis.set_major_formatter("{x:g}")
                number_ticks(axes, found["steps"])
            panels[1].set_xlabel("T, steps")
            legend(panels[0])

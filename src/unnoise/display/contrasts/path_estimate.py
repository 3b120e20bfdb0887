"""`path-estimate`: the bound by log ratios of paths and by KL terms, whole or one step at a time."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, predict
from unnoise.display.contrasts.base import Contrast, Found, Progress
from unnoise.display.contrasts.language import ExactMean, Language, all_texts
from unnoise.display.style import legend, pictures, series
from unnoise.objective import Elbo
from unnoise.process import Masked, Process, Uniform
from unnoise.process.base import gather
from unnoise.schedule import Linear

VOCAB, LENGTH, ERROR = 3, 4, 0.5
KINDS = {
    "step": "one step, T·(log q − log p)",
    "step KL": "one step, T·KL",
    "path KL": "whole path, sum of KL",
    "path": "whole path, log q − log p",
}


def processes() -> dict[str, Process]:
    """Return the noises of the two panels."""
    return {"uniform": Uniform(VOCAB, Linear(), reverse="plug-in"), "masked": Masked(VOCAB, Linear())}


def estimates(process: Process, denoiser: Denoiser, x: Tensor, steps: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Draw paths x_1 … x_T ~ q(· | x_0) and return four estimates of −E_q[log p(x_0 … x_T) − log q(x_1 … x_T | x_0)], [B] each.

    path: log q(x_1 … x_T | x_0) − log p(x_0 … x_T) = −log p(x_T) + Σ_t [ log q(x_t | x_{t−1}) − log p(x_{t−1} | x_t) ].
    path KL: KL(q(x_T | x_0) ‖ p(x_T)) + Σ_t KL(q(x_{t−1} | x_t, x_0) ‖ p(x_{t−1} | x_t)).
    step, step KL: the same with T times the term of one t, drawn uniformly, in place of the sum.
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
    """Return the mean of these estimates for one text, by a sum over all x_t: x [L]."""
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
                axes.minorticks_off()
            panels[1].set_xticks(found["steps"], [str(steps) for steps in found["steps"]])
            panels[1].set_xlabel("T, steps")
            legend(panels[0])

"""`scores`: the probabilities that a network's scores imply at masks, and their sum."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from unnoise.denoiser import predict
from unnoise.display.contrasts.base import Contrast, Found, Progress
from unnoise.display.contrasts.training import HELD_OUT, moments, small_model, train, windows
from unnoise.display.style import legend, pictures, series
from unnoise.model.model import Model
from unnoise.prediction import TokenPrediction
from unnoise.process import Masked

NAMES = {
    "sedd-absorb": "sedd-absorb, scaled",
    "sedd-absorb:scaled=false": "sedd-absorb, log s itself",
    "mdlm": "mdlm, a mean",
}
LEVELS = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)


def implied_sum(process: Masked, prediction: TokenPrediction, x_t: Tensor, t: Tensor) -> Tensor:
    """Return Z = Σ_{y<K} s_y (1 − α)/α, the sum of the probabilities μ_y = s_y (1 − α)/α that scores at masks imply: [n]."""
    log_s = prediction.ratios(process, x_t, t).double()
    return (torch.logsumexp(log_s[..., :-1], -1) + (process.schedule.noise(t) / process.schedule.alpha(t)).log()).exp()


def price(process: Masked, z: Tensor, t: Tensor) -> Tensor:
    """Return −α′/(1−α) · (Z − 1 − log Z), the nats per unit of time by which the bound is looser than with s/Z: [n]."""
    return process.schedule.hazard(t) * (z - 1 - z.log())


@torch.no_grad()
def measured(model: Model, x: Tensor) -> dict[str, float]:
    """Return quantiles of Z over the masks of noised texts, and the price of the bound in bits per character."""
    process = model.process
    assert isinstance(process, Masked)
    generator = torch.Generator().manual_seed(0)
    sums, nats = [], 0.0
    for level in LEVELS:
        t = level.expand(len(x))
        x_t = process.corrupt(x, t, generator)
        where = process.active(x_t)
        if not where.any():
            continue
        at = level.expand(int(where.sum()))
        z = implied_sum(process, predict(model.denoiser, process, x_t, t, where), x_t[where], at)
        sums.append(z)
        nats += float(price(process, z, at).sum()) / x.numel() / len(LEVELS)
    low, middle, high = torch.quantile(torch.cat(sums), torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64)).tolist()
    return {"low": low, "median": middle, "high": high, "price": nats / math.log(2)}


@dataclass(kw_only=True)
class ImpliedProbabilities(Contrast):
    """Settings of `scores`: `updates` of each network."""

    title = "SEDD: the probabilities that scores imply at a mask"
    about = """\
At a mask the true score is s(m, t)_y = α/(1−α) · p(x_0 = y | x_t): the ratio of being y to being masked. So
Σ_{y≠m} s(m, t)_y = α/(1−α), and the implied probabilities μ_y = s_y (1−α)/α sum to one. A mean parameterization,
s_θ = α/(1−α) · μ_θ with μ_θ = softmax(network), obeys the constraint whatever the weights are.
SEDD predicts log s_y for each y, and nothing keeps the sum: Z = Σ_y s_y (1−α)/α is a number that training must bring to 1.
Then the reverse process reveals masks at a wrong rate, Z times the true rate, and does not reverse the forward process.
The bound tells what that costs: with μ = normalised s, the score entropy at a mask is exactly
−α′/(1−α) · [ −log μ_{x_0} + (Z − 1 − log Z) ], the loss of the mean parameterization and a price that is 0 only at Z = 1.
Scaled output, log s = network + log α/(1−α) − log K (the official default), starts near Z = 1; with log s = network the sum
starts at K(1−α)/α, and the network must learn α(t) first. Upper picture: median of Z and the range of 90 % of the masks, with t
from 0.05 to 0.95. Lower: the price of Z in bits per character, part of the bound, over the same range of t."""
    updates: int = 400

    def measure(self, progress: Progress) -> Found:
        found: Found = {"updates": moments(self.updates)}
        for number, name in enumerate(NAMES):
            model = small_model(name, self.seed)
            x = windows(model, "test", HELD_OUT)
            rows = []
            for update in train(model, model.method.objective(model.process), self.updates, self.seed):
                progress((number + update / self.updates) / len(NAMES))
                if update in found["updates"]:
                    rows.append(measured(model, x))
            found[name] = rows
        return found

    def lines(self, found: Found) -> list[str]:
        lines = ["Z: median (5 % … 95 % of the masks), and its price in bits per character", ""]
        lines.append("updates   " + "   ".join(f"{label:36s}" for label in NAMES.values()))
        for i, update in enumerate(found["updates"]):
            cells = [
                f"{row['median']:8.4f} ({row['low']:7.4f} … {row['high']:8.4f}) {row['price']:7.4f}"
                for row in (found[name][i] for name in NAMES)
            ]
            lines.append(f"{update:7d}   " + "   ".join(cells))
        return lines

    def draw(self, found: Found, path: Path, *, dark: bool = False) -> None:
        with pictures(path, height=6.0, rows=2, dark=dark) as (above, below):
            for i, (name, label) in enumerate(NAMES.items()):
                rows, style = found[name], series(i)
                above.plot(found["updates"], [row["median"] for row in rows], label=label, **style)
                low, high = ([row[end] for row in rows] for end in ("low", "high"))
                above.fill_between(found["updates"], low, high, color=style["color"], alpha=0.2, linewidth=0)
                if any(row["price"] > 1e-9 for row in rows):
                    below.plot(found["updates"], [row["price"] for row in rows], **style)
            above.set(yscale="log", ylabel="Z, sum of implied\nprobabilities", title=self.title)
            below.set(yscale="log", xlabel="updates", ylabel="price of Z ≠ 1,\nbits per character", ylim=(1e-5, None))
            below.set_xscale("symlog", linthresh=1)
            below.set_xlim(-0.2, 1.15 * self.updates)
            below.set_xticks(found["updates"], [str(update) for update in found["updates"]])
            for axes in (above, below):
                axes.minorticks_off()
                axes.yaxis.set_major_formatter("{x:g}")
            legend(above)

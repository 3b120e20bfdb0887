"""`concrete-score`: the concrete score on a fine grid next to the gradient of the log density."""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from unnoise.display.contrasts.base import Contrast, Found, Progress
from unnoise.display.style import legend, pictures, series
from unnoise.process import Neighbourhood

LOW, HIGH = -4.0, 4.0
WEIGHTS, MEANS, WIDTHS = (0.4, 0.6), (-1.2, 1.0), (0.6, 0.9)  # of the two normal distributions
SHOWN = (1.0, 0.5, 0.125)


def log_density(x: Tensor) -> Tensor:
    """Return log Σ_k w_k N(x; m_k, σ_k²): [...] → [...]."""
    w, m, sigma = (torch.tensor(values, dtype=torch.float64) for values in (WEIGHTS, MEANS, WIDTHS))
    z = (x[..., None] - m) / sigma
    return torch.logsumexp(w.log() - sigma.log() - 0.5 * math.log(2 * math.pi) - z**2 / 2, -1)


def gradient(x: Tensor) -> Tensor:
    """Return d/dx log p(x) in closed form: [...] → [...]."""
    w, m, sigma = (torch.tensor(values, dtype=torch.float64) for values in (WEIGHTS, MEANS, WIDTHS))
    z = (x[..., None] - m) / sigma
    share = torch.softmax(w.log() - sigma.log() - z**2 / 2, -1)
    return (share * -z / sigma).sum(-1)


def concrete_score(p: Tensor, neighbours: Neighbourhood) -> Tensor:
    """Return c_p(x; N)_y = p(y)/p(x) − 1 for y ∈ N(x), zero elsewhere: [S] → [S, S]."""
    return torch.where(neighbours.neighbours, p / p[:, None] - 1, torch.zeros(len(p), len(p), dtype=p.dtype))


def on_grid(delta: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return points x with neighbours x ± δ, p(x), c_p(x; x + δ)/δ, and (c_p(x; x + δ) − c_p(x; x − δ))/2δ: [n] each."""
    x = torch.arange(round((HIGH - LOW) / delta) + 1, dtype=torch.float64) * delta + LOW
    p = torch.softmax(log_density(x), 0)
    c = concrete_score(p, Neighbourhood.named("line", len(x)))
    up, down = c.diagonal(1)[1:], c.diagonal(-1)[:-1]
    return x[1:-1], p[1:-1], up / delta, (up - down) / (2 * delta)


@dataclass(kw_only=True)
class GridScore(Contrast):
    """Settings of `concrete-score`: δ = 1, 1/2, 1/4, … in `levels` levels."""

    title = "The concrete score on a grid, and the score"
    about = """\
The concrete score of a neighbourhood N(x) = {x_1 … x_k} is c_p(x; N) = [p(x_1)/p(x), …, p(x_k)/p(x)] − 1. It needs ratios of
probabilities only, so the constant that normalises p cancels, as in the score ∇ log p of continuous data.
Take points of a grid of spacing δ, and as neighbours the next points, N_δ(x) = {x + δ e_i}. Then
c_p(x; N_δ)/δ = (p(x + δ) − p(x)) / (δ p(x)) → p′(x)/p(x) = ∇ log p(x) as δ → 0:
the concrete score is the score of discrete data. Taylor's theorem gives the error δ/2 · p″(x)/p(x) + O(δ²), so halving δ
halves the error. With neighbours on both sides, (c_p(x; x + δ) − c_p(x; x − δ))/2δ, the first-order terms cancel, and halving δ
divides the error by four.
Here p is a mixture of two normal distributions, its probabilities on the grid are normalised to sum to one, and the error is
the root mean square under p on [−4, 4]. Concrete score matching learns c_p, and SEDD learns the ratios s = 1 + c_p.
A squared loss of c_p on such a grid is, divided by δ², the loss of score matching in the limit."""
    levels: int = 9

    def measure(self, progress: Progress) -> Found:
        found: Found = {"delta": [], "error": [], "two-sided error": [], "curves": []}
        for level in range(self.levels):
            delta = 2.0**-level
            x, p, one, two = on_grid(delta)
            exact = gradient(x)
            found["delta"].append(delta)
            for name, values in (("error", one), ("two-sided error", two)):
                found[name].append(float((p * (values - exact) ** 2).sum().sqrt()))
            if delta in SHOWN:
                found["curves"].append({"delta": delta, "x": x.tolist(), "score": one.tolist()})
            progress((level + 1) / self.levels)
        return found

    def lines(self, found: Found) -> list[str]:
        lines = ["  δ          error of c/δ   ratio   two-sided   ratio"]
        before = (math.nan, math.nan)
        for row in zip(found["delta"], found["error"], found["two-sided error"], strict=True):
            delta, one, two = row
            lines.append(f"  {delta:<9g}  {one:11.3e}  {before[0] / one:6.2f}  {two:10.3e}  {before[1] / two:6.2f}")
            before = (one, two)
        return lines

    def draw(self, found: Found, path: Path, *, dark: bool = False) -> None:
        with pictures(path, height=6.0, rows=2, share_x=False, dark=dark) as (above, below):
            x = torch.linspace(-2.6, 3.2, 400, dtype=torch.float64)
            above.plot(x, gradient(x), label="∇ log p(x)", **series(0, markers=False))
            for i, curve in enumerate(found["curves"], 1):
                style = series(i) | {"linestyle": "", "markersize": 4}
                above.plot(curve["x"], curve["score"], label=f"c(x; x + δ)/δ, δ = {curve['delta']:g}", **style)
            above.set(xlabel="x", ylabel="score", title=self.title, xlim=(-2.6, 3.2), ylim=(-3.5, 6))
            legend(above)
            below.plot(found["delta"], found["error"], label="one neighbour, x + δ", **series(1))
            below.plot(found["delta"], found["two-sided error"], label="two neighbours, x ± δ", **series(2))
            below.set(
                xscale="log", yscale="log", xlabel="δ", ylabel="error, root mean square", title="error: order δ, and order δ²"
            )
            for axis in (below.xaxis, below.yaxis):
                axis.set_major_formatter("{x:g}")
            legend(below)

"""Contrasts of scores, the ratios of probabilities.

concrete-score: the concrete score on a fine grid, and the gradient of the log density.
score-entropy: the squared loss of concrete score matching, and score entropy.
scores: the sum of the probabilities that a network's scores imply at masks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from unnoise.apps.contrasts.base import HELD_OUT, Contrast, Found, Progress, moments, number_ticks, small_model, train, windows
from unnoise.apps.plots.style import legend, look, pictures, series
from unnoise.denoiser import predict
from unnoise.model.model import Model
from unnoise.objective import ConcreteScore, Objective, ScoreEntropy
from unnoise.prediction import TokenPrediction
from unnoise.process import Masked, Neighbourhood, Process

LOW, HIGH = -4.0, 4.0
WEIGHTS, MEANS, WIDTHS = (0.4, 0.6), (-1.2, 1.0), (0.6, 0.9)  # parameters of the two normal distributions
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
probabilities only, so the constant that normalizes p cancels, as in the score ∇ log p of continuous data.
Take points of a grid of spacing δ, and as neighbours the next points, N_δ(x) = {x + δ e_i}. Then
c_p(x; N_δ)/δ = (p(x + δ) − p(x)) / (δ p(x)) → p′(x)/p(x) = ∇ log p(x) as δ → 0:
the concrete score is the score of discrete data. Taylor's theorem gives the error δ/2 · p″(x)/p(x) + O(δ²), so halving δ
halves the error. With neighbours on both sides, (c_p(x; x + δ) − c_p(x; x − δ))/2δ, the first-order terms cancel, and halving δ
divides the error by four.
Here p is a mixture of two normal distributions, its probabilities on the grid are normalized to sum to one, and the error is
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


RATIOS = (1.0, 0.1, 0.0)
LEVEL = 0.3
MATCHING = {"csm": "squared loss", "sedd-uniform": "score entropy"}
LOSSES: dict[str, Callable[[Process], Objective]] = {  # on ratios, without the weight of the bound
    "csm": lambda process: ConcreteScore(process, weighted=True),
    "sedd-uniform": lambda process: ScoreEntropy(process, start=0.01),
}


def squared(s: Tensor, r: float) -> tuple[Tensor, Tensor]:
    """Return the squared loss ½(s − r)² and its derivative s − r: [...]."""
    return 0.5 * (s - r) ** 2, s - r


def entropy(s: Tensor, r: float) -> tuple[Tensor, Tensor]:
    """Return the score entropy s − r log s + r(log r − 1) at s > 0, and its derivative (s − r)/s: [...]."""
    known = r * (torch.tensor(r, dtype=s.dtype).log() - 1) if r > 0 else torch.zeros((), dtype=s.dtype)
    return s - torch.xlogy(torch.full_like(s, r), s) + known, (s - r) / s


@torch.no_grad()
def predicted(model: Model, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return predicted ratios s_y and true ratios r_y = q(y|x_0)/q(x_t|x_0), y ≠ x_t, for texts noised to t = 0.3: [m] each."""
    process = model.process
    assert isinstance(process, Process)
    t = torch.full((len(x),), LEVEL, dtype=torch.float64)
    x_t = process.corrupt(x, t, torch.Generator().manual_seed(0))
    at = t[:, None].expand(x.shape).flatten()
    s = predict(model.denoiser, process, x_t, t, torch.ones_like(x, dtype=torch.bool)).plain_ratios(process, x_t.flatten(), at)
    r = process.true_ratios(x.flatten(), x_t.flatten(), at)
    other = x_t.flatten()[:, None] != torch.arange(process.states)
    return s[other].double(), r[other]


@dataclass(kw_only=True)
class SquaredAndEntropy(Contrast):
    """Settings of `score-entropy`: `updates` of each network."""

    title = "Concrete score matching and score entropy"
    about = """\
Both losses match predicted ratios s_y with r_y = p_t(y)/p_t(x), and both have their minimum at s = r.
Concrete score matching takes ½(s − r)², with derivative s − r. SEDD takes the score entropy s − r log s + K(r), where
K(r) = r(log r − 1): the Bregman divergence of r log r. Its derivative is (s − r)/s, 1/s times the derivative s − r.
Near s = 0 the logarithm is a barrier: for r > 0 the loss and its slope are infinite at s = 0, and s < 0 is impossible.
For the squared loss nothing happens at 0. If r is small, s = −r costs only 2r², though a ratio of probabilities cannot be
negative, and no jump can have a negative rate. Errors of small ratios hardly count, those of large ratios dominate.
In text most ratios are small: letters that do not fit. In the lowest picture two small networks are trained on the same
batches, `csm` with s linear in the outputs and the squared loss, `sedd-uniform` with log s and score entropy. On held-out text
some ratios of csm are negative, and bounds and samplers must clip them. The ratios of score entropy are all positive.
The smallest true ratio at the time shown is (1 − α)/(1 − α + Kα), where x_t = x_0."""
    updates: int = 300

    def measure(self, progress: Progress) -> Found:
        found: Found = {"updates": self.updates, "t": LEVEL}
        for number, name in enumerate(MATCHING):
            model = small_model(name, self.seed)
            assert isinstance(model.process, Process)
            for update in train(model, LOSSES[name](model.process), self.updates, self.seed):
                progress((number + update / self.updates) / len(MATCHING))
            s, r = predicted(model, windows(model, "test", HELD_OUT))
            found[name] = {
                "negative": float((s < 0).double().mean()),
                "least": float(s.min()),
                "least true": float(r.min()),
                "quantiles": torch.quantile(s[:: len(s) // 20_000 + 1], torch.linspace(0, 1, 201, dtype=s.dtype)).tolist(),
            }
        return found

    def lines(self, found: Found) -> list[str]:
        lines = [f"predicted ratios after {found['updates']} updates, held-out text at t = {found['t']}", ""]
        for name, label in MATCHING.items():
            row = found[name]
            lines.append(
                f"{label:14s} {100 * row['negative']:6.2f} % negative, least {row['least']:9.5f}, "
                f"least true ratio {row['least true']:.5f}"
            )
        return lines

    def draw(self, found: Found, path: Path, *, dark: bool = False) -> None:
        s, positive = torch.linspace(-1, 2.5, 500, dtype=torch.float64), torch.linspace(1e-3, 2.5, 500, dtype=torch.float64)
        with pictures(path, height=8.2, rows=3, share_x=False, dark=dark) as (losses, slopes, fitted):
            for axes, which in ((losses, 0), (slopes, 1)):
                for i, r in enumerate(RATIOS):
                    axes.plot(s, squared(s, r)[which], label=f"squared, r = {r:g}", color=f"C{i}", linestyle="--")
                    axes.plot(positive, entropy(positive, r)[which], label=f"entropy, r = {r:g}", color=f"C{i}")
                axes.axvline(0, color=look(dark).dim, linewidth=0.8)
                axes.set_xlabel("s, predicted ratio")
            losses.set(ylabel="loss", ylim=(-0.05, 3), title="losses against the predicted ratio")
            slopes.set(ylabel="derivative", ylim=(-6, 2.5), title="derivatives: s − r, and (s − r)/s")
            legend(losses)
            for i, (name, label) in enumerate(MATCHING.items()):
                values = found[name]["quantiles"]
                shares = [k / (len(values) - 1) for k in range(len(values))]
                share = f"{100 * found[name]['negative']:.1f} % below 0"
                fitted.plot(values, shares, label=f"{name}: {label},\n{share}", **series(i, markers=False))
            fitted.axvline(0, color=look(dark).dim, linewidth=0.8)
            fitted.axvline(
                found["csm"]["least true"], color=look(dark).dim, linewidth=0.8, linestyle=":", label="least true ratio"
            )
            fitted.set(xlim=(-2, 2), ylim=(0, 1), xlabel="s, predicted ratio", ylabel="share of ratios ≤ s")
            fitted.set_title(f"ratios of two small networks, t = {found['t']}, held-out text")
            legend(fitted)


PREDICTIONS = {
    "sedd-absorb": "sedd-absorb, scaled",
    "sedd-absorb:scaled=false": "sedd-absorb, log s itself",
    "mdlm": "mdlm, a mean",
}
LEVELS = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)


def implied_sum(process: Masked, prediction: TokenPrediction, x_t: Tensor, t: Tensor) -> Tensor:
    """Return Z = Σ_{y<K} μ_y, the sum of the probabilities μ_y = s_y (1 − α)/α that scores at masks imply: [n]."""
    log_s = prediction.ratios(process, x_t, t).double()
    return (torch.logsumexp(log_s[..., :-1], -1) + (process.schedule.noise(t) / process.schedule.alpha(t)).log()).exp()


def price(process: Masked, z: Tensor, t: Tensor) -> Tensor:
    """Return −α′/(1−α) · (Z − 1 − log Z), by which the bound is looser than with s/Z, in nats per unit of time: [n]."""
    return process.schedule.hazard(t) * (z - 1 - z.log())


@torch.no_grad()
def measured(model: Model, x: Tensor) -> dict[str, float]:
    """Return quantiles of Z over the masks of noised texts, and its price in bits per character."""
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
The bound tells what that costs: with μ = normalized s, the score entropy at a mask is exactly
−α′/(1−α) · [ −log μ_{x_0} + (Z − 1 − log Z) ], the loss of the mean parameterization and a price that is 0 only at Z = 1.
Scaled output, log s = network + log α/(1−α) − log K (the official default), starts near Z = 1; with log s = network the sum
starts at K(1−α)/α, and the network must learn α(t) first. Upper picture: median of Z and the range of 90 % of the masks, with t
from 0.05 to 0.95. Lower: the price of Z in bits per character, part of the bound, over the same range of t."""
    updates: int = 400

    def measure(self, progress: Progress) -> Found:
        found: Found = {"updates": moments(self.updates)}
        for number, name in enumerate(PREDICTIONS):
            model = small_model(name, self.seed)
            x = windows(model, "test", HELD_OUT)
            rows = []
            for update in train(model, model.method.objective(model.process), self.updates, self.seed):
                progress((number + update / self.updates) / len(PREDICTIONS))
                if update in found["updates"]:
                    rows.append(measured(model, x))
            found[name] = rows
        return found

    def lines(self, found: Found) -> list[str]:
        lines = ["Z: median (5 % … 95 % of the masks), and its price in bits per character", ""]
        lines.append("updates   " + "   ".join(f"{label:36s}" for label in PREDICTIONS.values()))
        for i, update in enumerate(found["updates"]):
            cells = [
                f"{row['median']:8.4f} ({row['low']:7.4f} … {row['high']:8.4f}) {row['price']:7.4f}"
                for row in (found[name][i] for name in PREDICTIONS)
            ]
            lines.append(f"{update:7d}   " + "   ".join(cells))
        return lines

    def draw(self, found: Found, path: Path, *, dark: bool = False) -> None:
        with pictures(path, height=6.0, rows=2, dark=dark) as (above, below):
            for i, (name, label) in enumerate(PREDICTIONS.items()):
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
            for axes in (above, below):
                number_ticks(axes, found["updates"])
                axes.yaxis.set_major_formatter("{x:g}")
            legend(above)

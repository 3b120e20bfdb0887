"""`score-entropy`: the squared loss of concrete score matching, and score entropy."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from unnoise.denoiser import predict
from unnoise.display.contrasts.base import Contrast, Found, Progress
from unnoise.display.contrasts.training import HELD_OUT, small_model, train, windows
from unnoise.display.style import legend, look, pictures, series
from unnoise.model.model import Model
from unnoise.objective import ConcreteScore, Objective, ScoreEntropy
from unnoise.process import Process

RATIOS = (1.0, 0.1, 0.0)
LEVEL = 0.3
NAMES = {"csm": "squared loss", "sedd-uniform": "score entropy"}
LOSSES: dict[str, Callable[[Process], Objective]] = {  # on ratios, without the weight of the bound
    "csm": lambda process: ConcreteScore(process, weighted=True),
    "sedd-uniform": lambda process: ScoreEntropy(process, start=0.01),
}


def squared(s: Tensor, r: float) -> tuple[Tensor, Tensor]:
    """Return ½(s − r)² and its derivative s − r: [...]."""
    return 0.5 * (s - r) ** 2, s - r


def entropy(s: Tensor, r: float) -> tuple[Tensor, Tensor]:
    """Return s − r log s + K(r), K(r) = r(log r − 1), and its derivative (s − r)/s, at s > 0: [...]."""
    known = r * (torch.tensor(r, dtype=s.dtype).log() - 1) if r > 0 else torch.zeros((), dtype=s.dtype)
    return s - torch.xlogy(torch.full_like(s, r), s) + known, (s - r) / s


@torch.no_grad()
def predicted(model: Model, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return predicted ratios s_y and the true r_y = q(y|x_0)/q(x_t|x_0), y ≠ x_t, on texts noised to t = 0.3: [m] each."""
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
        for number, name in enumerate(NAMES):
            model = small_model(name, self.seed)
            assert isinstance(model.process, Process)
            for update in train(model, LOSSES[name](model.process), self.updates, self.seed):
                progress((number + update / self.updates) / len(NAMES))
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
        for name, label in NAMES.items():
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
            for i, (name, label) in enumerate(NAMES.items()):
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

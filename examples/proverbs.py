"""A language of a dozen proverbs, whose exact denoiser is known, so nothing is trained.

The denoiser sums p(x_0 | x_t) ∝ p(x_0)·Π_i q(x_t^i | x_0^i) over the proverbs. So every bound equals the entropy, and every
sampler generates proverbs. Run it with `python examples/proverbs.py`.
"""

import itertools
import math
import time
from collections.abc import Sequence

import torch
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text
from torch import Tensor

from unnoise.method_table import Method, method
from unnoise.network.parameterization import Parameterization, ScoreParameterization
from unnoise.objective import Elbo
from unnoise.prediction import MeanPrediction, ScorePrediction, TokenPrediction
from unnoise.process import Process
from unnoise.sampler import Ancestral, FirstHitting, Sampler, TweedieLeaping, sample_frames

ROUNDS = 250
ALPHABET = "abcdefghijklmnopqrstuvwxyz "
PROVERBS = (
    "a stitch in time saves nine",
    "actions speak louder than words",
    "all that glitters is not gold",
    "better late than never",
    "every cloud has a silver lining",
    "fortune favours the bold",
    "no smoke without fire",
    "practice makes perfect",
    "rome was not built in a day",
    "still waters run deep",
    "the early bird catches the worm",
    "when in rome do as the romans do",
)


class Proverbs:
    """Exact denoiser of the uniform distribution over texts x [N, L]."""

    def __init__(self, x: Tensor, process: Process, kind: type[Parameterization]):
        self.x, self.process, self.kind = x, process, kind

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> TokenPrediction:
        at = t.double()[:, None, None].expand(len(x_t), len(self.x), x_t.shape[1])
        noisy, clean = x_t[:, None].expand(at.shape), self.x.expand(at.shape)
        log_q = self.process.log_prob(noisy, clean, at)  # [B, N, L]
        whole = log_q.sum(-1, keepdim=True)
        if self.process.reverse == "plug-in":  # the mean at a position must not use the token there
            whole = whole - log_q
        weight = torch.softmax(whole.expand_as(log_q).clamp_min(-1e9), 1)  # p(text | x_t), for each position
        mean = torch.zeros(*x_t.shape, self.process.vocab, dtype=torch.float64)
        mean.scatter_add_(-1, self.x.T.expand(len(x_t), -1, -1), weight.transpose(1, 2))
        log_mean = mean.clamp_min(1e-30).log()
        if self.kind is ScoreParameterization:
            ratios = self.process.mean_ratios(log_mean, x_t, at[:, 0])
            return ScorePrediction(ratios if where is None else ratios[where])
        return MeanPrediction(log_mean if where is None else log_mean[where])


def token_process(entry: Method) -> Process:
    """Return the process of a method over the letters."""
    process = entry.process(len(ALPHABET))
    assert isinstance(process, Process)
    return process


def encode(texts: Sequence[str]) -> Tensor:
    """Encode texts, padded with spaces to the same length: [N, L]."""
    length = max(map(len, texts))
    return torch.tensor([[ALPHABET.index(c) for c in text.ljust(length)] for text in texts])


def show(canvas: Tensor, mask: int, before: Tensor | None) -> Text:
    """Return a state as text, with masks as dots and changed tokens in bold."""
    line = Text()
    for i, token in enumerate(canvas.tolist()):
        fresh = before is not None and token != int(before[i])
        line.append("·" if token == mask else ALPHABET[token], style="bold green" if fresh else "dim" if token == mask else "")
    return line


def bounds(console: Console, x: Tensor) -> None:
    """Print the bound of each of eight methods next to the entropy."""
    entropy = math.log2(len(x))
    table = Table(title=f"{len(x)} proverbs, equally likely: the entropy is {entropy:.4f} bits")
    for column in ("method", "bound (bits)", "paper"):
        table.add_column(column)
    for name in ("mdlm", "md4", "sedd-absorb", "d3pm-absorb", "udlm", "d3pm-uniform", "sedd-uniform", "multinomial"):
        entry = method(name)
        process = token_process(entry)
        bound, denoiser = entry.bound(process), Proverbs(x, process, entry.parameterization)
        if isinstance(bound, Elbo) and bound.steps is None:
            bound = Elbo(process, power=2.0)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            means = torch.stack([bound(denoiser, x.repeat(8, 1), generator).double().mean() for _ in range(ROUNDS)]) / math.log(
                2
            )
        table.add_row(name, f"{means.mean():.2f} ± {means.std() / len(means) ** 0.5:.2f}", entry.paper)
    console.print(table)
    console.print("Eight formulas with the same result (± one standard error).\n", style="dim")


def write(console: Console, x: Tensor) -> None:
    """Show how three samplers generate a proverb from noise."""
    runs: list[tuple[str, Sampler]] = [
        ("mdlm", FirstHitting()),
        ("sedd-absorb", TweedieLeaping(600)),
        ("d3pm-uniform", Ancestral(200)),
    ]
    for name, sampler in runs:
        entry = method(name)
        process = token_process(entry)
        denoiser = Proverbs(x, process, entry.parameterization)
        console.print(f"[bold]{name}[/], {type(sampler).__name__}:")
        frames = list(sample_frames(process, denoiser, batch=1, length=x.shape[1], sampler=sampler, seed=4))
        if console.is_terminal:
            with Live(console=console, transient=True, refresh_per_second=30) as live:
                for before, frame in itertools.pairwise(frames):
                    live.update(show(frame.x[0], process.vocab, before.x[0]))
                    time.sleep(3 / len(frames))
        for part in (0, 0.25, 0.5, 0.75, 1):
            frame = frames[round(part * (len(frames) - 1))]
            console.print(Text(f"  t = {frame.t:4.2f}  ", style="dim"), show(frame.x[0], process.vocab, None), sep="")


if __name__ == "__main__":
    terminal, proverbs = Console(), encode(PROVERBS)
    write(terminal, proverbs)
    bounds(terminal, proverbs)

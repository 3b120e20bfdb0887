"""Denoising: a text is taken as x_t, and x_0 is predicted or sampled."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, predict_clean
from unnoise.distributed import rows_at_once
from unnoise.families.block import Blocks
from unnoise.process.masked import Masked
from unnoise.process.process_base import Process
from unnoise.process.state import ProcessBase
from unnoise.rng import RowGenerator, seed_of
from unnoise.sampler.metropolis import gibbs_sweeps, site_posteriors
from unnoise.sampler.sampler_base import SteppedSampler
from unnoise.sampler.sampling import sample_from

if TYPE_CHECKING:
    from unnoise.model.model import Model

LEVEL = 0.05  # the default t
STEPS, SWEEPS = 128, 4  # default number of steps of the sampler, and of sweeps of Gibbs sampling
ROWS = 64
MOST_SAMPLES = 10_000
OnProgress = Callable[[float], None]


@dataclass(frozen=True)
class TokenEdit:
    """A token that denoising changed.

    position: position of the token in the text.
    start: position of its first character.
    old, new: token before and after.
    probability: p(x_0^i = new | x_t).
    """

    position: int
    start: int
    old: str
    new: str
    probability: float


@dataclass(frozen=True)
class Denoised:
    """A prediction or a sample of x_0.

    text: text of x_0.
    edits: tokens of x_0 that differ from x_t.
    replaced: probability at this t that noise has replaced a token.
    read: x_t as the codec decodes it, if the codec changes the text.
    windows: number of windows of at most the model's length, each denoised separately.
    """

    text: str
    edits: list[TokenEdit]
    replaced: float
    read: str | None
    windows: int


def check_denoises(model: "Model") -> None:
    """Raise ValueError unless the model can denoise texts."""
    if model.codec.grid:
        raise ValueError("this is a model of images: denoise takes a text")
    if not isinstance(model.process, Process) or isinstance(model.process, Blocks):
        raise ValueError(
            f"denoise needs a bidirectional model with noise on tokens, such as multinomial, udlm, gidd or mdlm, found "
            f"{model.method.name}: use unnoise correct"
        )


@torch.no_grad()
def denoise(
    model: "Model",
    text: str,
    at: float = LEVEL,
    n: int = 0,
    *,
    steps: int | None = None,
    seed: int = 0,
    label: int | str | None = None,
    guidance_scale: float = 1.0,
    on_progress: OnProgress | None = None,
) -> list[Denoised]:
    """Take a text as x_t at t = `at` and return x_0: the most probable token at each position, or n samples.

    With n = 0 the result is one text whose tokens are the modes of p(x_0^i | x_t). Samples come from p(x_0 | x_t) by the
    method's own sampler, from t to 0. Masked noise never replaces a token with another. So for a masked model `at` is the share
    of tokens that random errors have replaced, and samples come from Gibbs sampling (see `unnoise.sampler.metropolis`).

    steps: number of steps of the sampler (default: 128) or sweeps of Gibbs sampling (default: 4).
    on_progress: function called with the fraction of the work that is done.
    """
    check_denoises(model)
    if not 0 < at < 1:
        raise ValueError(f"a text is denoised from a time 0 < t < 1, found {at:g}")
    if not 0 <= n <= MOST_SAMPLES:
        raise ValueError(f"the number of samples must lie between 0 and {MOST_SAMPLES}, found {n}")
    if steps is not None and n == 0:
        raise ValueError("steps are for samples of x_0, and a prediction takes one call: leave steps out, or give n")
    tokens = torch.from_numpy(model.codec.encode(model.codec.with_leading_space(text) if text else text)).to(model.device)
    if not len(tokens):
        raise ValueError("there is no text to denoise: it is empty")
    model.network.eval()
    denoiser = model.denoiser.condition(model.label_number(label), guidance_scale)
    windows = tokens.tensor_split(-(-len(tokens) // model.length))
    found: list[tuple[Tensor, Tensor, Tensor]] = []
    for i, window in enumerate(windows):

        def follow(share: float, i: int = i) -> None:
            if on_progress is not None:
                on_progress((i + share) / len(windows))

        run = _WindowDenoiser(model, denoiser, window, at, follow)
        found.append((window, *run.predictions(run.samples(n, steps, seed_of(seed, i)) if n else None)))
    replaced = float(torch.cat([replaced_share(model.process, window, at) for window in windows]).mean())
    rows = [[(window, x[row], p[row]) for window, x, p in found] for row in range(max(1, n))]
    return [_compared(model, text, row, replaced) for row in rows]


def replaced_share(process: ProcessBase, x: Tensor, t: float) -> Tensor:
    """Return the probability that a token at t differs from x_0, given that it is no mask: x [L] → [L] float64.

    For masked noise t is the rate of random errors.
    """
    assert isinstance(process, Process)
    at = torch.full(x.shape, t, dtype=torch.float64, device=x.device)
    if isinstance(process, Masked):
        return at * (1 - 1 / process.vocab)
    kept = process.log_prob(x, x, at).exp()
    if process.states == process.vocab:
        return 1 - kept
    return 1 - kept / process.marginal(x, at)[:, : process.vocab].sum(-1)


@dataclass(frozen=True)
class _WindowDenoiser:
    """Denoising of one window x_t [L]. follow: function called with the fraction of the work that is done."""

    model: "Model"
    denoiser: Denoiser
    window: Tensor
    at: float
    follow: OnProgress

    def samples(self, n: int, steps: int | None, seed: int) -> Tensor:
        """Sample x_0 given x_t: [n, L]."""
        process, sampler, length = self.model.process, self.model.method.sampler, len(self.window)
        rows = rows_at_once(length, ROWS, self.model.device, process.states)
        parts, drawn = torch.arange(n, device=self.window.device).split(rows), []
        for number, part in enumerate(parts):
            state = self.window.expand(len(part), -1).contiguous()
            if isinstance(process, Masked):
                sweeps, generator = SWEEPS if steps is None else steps, RowGenerator(seed, part)
                states: Iterator[Tensor] = gibbs_sweeps(
                    self.denoiser, process, state, self.at, sweeps=sweeps, generator=generator
                )
                count = sweeps * length
            else:
                chosen = sampler.with_nfe(STEPS if steps is None else steps)
                count = chosen.steps if isinstance(chosen, SteppedSampler) else STEPS
                frames = sample_from(
                    process,
                    self.denoiser,
                    state,
                    self.at,
                    sampler=chosen,
                    seed=seed,
                    independent_rows=True,
                    first_row=int(part[0]),
                )
                states = (frame.x for frame in frames)
            for done, x in enumerate(states, 1):
                state = x
                self.follow(min(1.0, (number + done / count) / len(parts)))
            drawn.append(state)
        return torch.cat(drawn)

    def predictions(self, drawn: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return x_0 [R, L], the samples `drawn` or else the most probable tokens, and p(x_0^i | x_t) of its tokens: [R, L]."""
        tokens, probabilities, start, end = [], [], 0, self.model.codec.eos
        for raw in self._posterior():
            if end is not None:  # EOS does not occur inside a text
                raw[:, end] = -torch.inf
            log_p = torch.log_softmax(raw, -1)
            count = len(log_p)
            here = log_p.argmax(-1)[None] if drawn is None else drawn[:, start : start + count]
            tokens.append(here)
            probabilities.append(log_p[torch.arange(count, device=here.device), here].exp())
            start += count
            self.follow(start / len(self.window))
        return torch.cat(tokens, 1), torch.cat(probabilities, 1)

    def _posterior(self) -> Iterator[Tensor]:
        """Yield log p(x_0^i | x_t) of all positions in order, some at a time: [m, K]."""
        process, window = self.model.process, self.window
        if isinstance(process, Masked):
            yield from site_posteriors(
                self.denoiser, process, window, self.at, rows_at_once(len(window), ROWS, self.model.device)
            )
            return
        assert isinstance(process, Process)
        t = torch.full((1,), self.at, dtype=torch.float64, device=window.device)
        where = torch.ones_like(window[None], dtype=torch.bool)
        yield predict_clean(self.denoiser, process, window[None], t, where).double()


def _compared(model: "Model", text: str, windows: list[tuple[Tensor, Tensor, Tensor]], replaced: float) -> Denoised:
    """Compare x_0 with the text. windows: x_t, x_0 and p(x_0^i | x_t) of each window, [L] each."""
    codec, edits, decoded, position, start = model.codec, [], "", 0, 0
    added = len(codec.with_leading_space(text)) - len(text)  # a leading space that the codec adds
    for before, after, probabilities in windows:
        old, new = before.tolist(), after.tolist()
        for i in (before != after).nonzero()[:, 0].tolist():
            old_token, new_token = (codec.decode(x[: i + 1])[len(codec.decode(x[:i])) :] for x in (old, new))
            at = max(0, start + len(codec.decode(old[:i])) - added)
            edits.append(TokenEdit(position + i, at, old_token, new_token, float(probabilities[i])))
        decoded += codec.decode(new)
        position, start = position + len(old), start + len(codec.decode(old))
    return Denoised(decoded.removeprefix(" " * added), edits, replaced, codec.read_as(text), len(windows))

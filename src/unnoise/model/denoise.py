"""Denoising: a given text is taken as x_t, and x_0 is predicted or sampled."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unnoise.data import Codec
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
STEPS, SWEEPS = 128, 4  # of a sampled x_0: of the sampler, and of Gibbs sampling
ROWS = 64
MOST_SAMPLES = 10_000
OnProgress = Callable[[float], None]


@dataclass(frozen=True)
class TokenEdit:
    """A token of the text that denoising changed.

    position: of the token in the text. start: of its first character. old, new: the token before and after. probability:
    p(x_0^i = new | x_t).
    """

    position: int
    start: int
    old: str
    new: str
    probability: float


@dataclass(frozen=True)
class Denoised:
    """A prediction or a sample of x_0.

    text: the text of x_0. edits: the tokens that are not those of x_t. replaced: how likely it is at this t that the noise has
    replaced a token. read: x_t as it was encoded, where the model's alphabet made another text of it. windows: pieces of at
    most the model's length that the text was cut into, each denoised without the others.
    """

    text: str
    edits: list[TokenEdit]
    replaced: float
    read: str | None
    windows: int


def check_denoises(model: "Model") -> None:
    """Raise ValueError unless a text can be a state of this model's noise, or one with random errors."""
    if model.codec.grid:
        raise ValueError("this is a model of images: denoise takes a text")
    if not isinstance(model.process, Process) or isinstance(model.process, Blocks):
        raise ValueError(
            f"denoise needs a model of noise on tokens that is conditioned on both sides, such as multinomial, udlm, gidd or "
            f"mdlm, found {model.method.name}: use unnoise correct"
        )


@torch.no_grad()
def denoise(
    model: "Model",
    text: str,
    at: float,
    *,
    n: int = 0,
    steps: int | None = None,
    seed: int = 0,
    label: int | str | None = None,
    guidance_scale: float = 1.0,
    on_progress: OnProgress | None = None,
) -> list[Denoised]:
    """Predict x_0 of a text x_t (n = 0), or draw n samples of it; see `Model.denoise`."""
    check_denoises(model)
    if not 0 < at < 1:
        raise ValueError(f"a text is denoised from a time 0 < t < 1, found {at:g}")
    if not 0 <= n <= MOST_SAMPLES:
        raise ValueError(f"the number of samples must lie between 0 and {MOST_SAMPLES}, found {n}")
    if steps is not None and n == 0:
        raise ValueError("steps are for samples of x_0: a prediction takes one call")
    tokens = torch.from_numpy(model.codec.encode(model.codec.with_leading_space(text) if text else text)).to(model.device)
    if not len(tokens):
        raise ValueError("there is no text to denoise: it is empty")
    model.network.eval()
    denoiser = model.denoiser.condition(model.label_number(label), guidance_scale)
    windows = tokens.tensor_split(-(-len(tokens) // model.length))
    found: list[tuple[Tensor, Tensor]] = []
    for i, window in enumerate(windows):
        follow = _shared(on_progress, i, len(windows))
        drawn = _sampled(model, denoiser, window, at, n, steps, seed_of(seed, i), follow) if n else None
        found.append(_with_posterior(model, denoiser, window, at, drawn, follow))
    level = float(torch.cat([replaced_share(model.process, window, at) for window in windows]).mean())
    return [
        _denoised(model, text, windows, [x[row] for x, _ in found], [p[row] for _, p in found], level)
        for row in range(max(1, n))
    ]


def replaced_share(process: ProcessBase, x: Tensor, t: float) -> Tensor:
    """Compute how likely a token is not x_0's own at t, given that it is no mask: x [L] → [L] float64.

    For masked noise t is the rate of random errors itself, ε.
    """
    assert isinstance(process, Process)
    at = torch.full(x.shape, t, dtype=torch.float64, device=x.device)
    if isinstance(process, Masked):
        return at * (1 - 1 / process.vocab)
    kept = process.log_prob(x, x, at).exp()
    if process.states == process.vocab:
        return 1 - kept
    return 1 - kept / process.marginal(x, at)[:, : process.vocab].sum(-1)


def _sampled(
    model: "Model",
    denoiser: Denoiser,
    window: Tensor,
    at: float,
    n: int,
    steps: int | None,
    seed: int,
    follow: OnProgress,
) -> Tensor:
    """Draw n samples of x_0 given x_t = window: [n, L]."""
    process, sampler, length = model.process, model.method.sampler, len(window)
    rows = rows_at_once(length, ROWS, model.device, process.states)
    parts, drawn = torch.arange(n, device=window.device).split(rows), []
    for number, part in enumerate(parts):
        state = window.expand(len(part), -1).contiguous()
        if isinstance(process, Masked):
            sweeps = SWEEPS if steps is None else steps
            states: Iterator[Tensor] = gibbs_sweeps(denoiser, process, state, at, sweeps, RowGenerator(seed, part))
            count = sweeps * length
        else:
            chosen = sampler.with_nfe(STEPS if steps is None else steps)
            count = chosen.steps if isinstance(chosen, SteppedSampler) else STEPS
            frames = sample_from(
                process, denoiser, state, at, sampler=chosen, seed=seed, independent_rows=True, first_row=int(part[0])
            )
            states = (frame.x for frame in frames)
        for done, x in enumerate(states, 1):
            state = x
            follow(min(1.0, (number + done / count) / len(parts)))
        drawn.append(state)
    return torch.cat(drawn)


def _with_posterior(
    model: "Model", denoiser: Denoiser, window: Tensor, at: float, drawn: Tensor | None, follow: OnProgress
) -> tuple[Tensor, Tensor]:
    """Return x_0 [R, L], the samples or else the most probable token of each position, and p(x_0^i | x_t) of each: [R, L]."""
    tokens, probabilities, start = [], [], 0
    for raw in _posterior(model, denoiser, window, at):
        if model.codec.eos is not None:  # a text does not end in its middle
            raw[:, model.codec.eos] = -torch.inf
        log_p = torch.log_softmax(raw, -1)
        count = len(log_p)
        here = log_p.argmax(-1)[None] if drawn is None else drawn[:, start : start + count]
        tokens.append(here)
        probabilities.append(log_p[torch.arange(count, device=window.device), here].exp())
        start += count
        follow(start / len(window))
    return torch.cat(tokens, 1), torch.cat(probabilities, 1)


def _posterior(model: "Model", denoiser: Denoiser, window: Tensor, at: float) -> Iterator[Tensor]:
    """Yield log p(x_0^i | x_t) of all positions in order, some at a time: [m, K]."""
    process = model.process
    if isinstance(process, Masked):
        rows = rows_at_once(len(window), ROWS, model.device)
        yield from site_posteriors(denoiser, process, window, at, rows)
        return
    assert isinstance(process, Process)
    t = torch.full((1,), at, dtype=torch.float64, device=window.device)
    yield predict_clean(denoiser, process, window[None], t, torch.ones_like(window[None], dtype=torch.bool)).double()


def _denoised(model: "Model", text: str, windows: Sequence[Tensor], x: list[Tensor], p: list[Tensor], level: float) -> Denoised:
    """Compare x_0 with the text and decode it: a tensor for each window."""
    codec, edits, written, position, start = model.codec, [], "", 0, 0
    added = len(codec.with_leading_space(text)) - len(text)  # a blank that stands before the text as it is encoded
    for before, after, probabilities in zip(windows, x, p, strict=True):
        old, new = before.tolist(), after.tolist()
        for i in (before != after).nonzero()[:, 0].tolist():
            pieces = [_piece(codec, tokens, i) for tokens in (old, new)]
            at = max(0, start + len(codec.decode(old[:i])) - added)
            edits.append(TokenEdit(position + i, at, pieces[0], pieces[1], float(probabilities[i])))
        written += codec.decode(new)
        position, start = position + len(old), start + len(codec.decode(old))
    strip = " " * added
    return Denoised(written.removeprefix(strip), edits, level, codec.read_as(text), len(windows))


def _piece(codec: Codec, tokens: list[int], i: int) -> str:
    """Return the characters that token i adds to the text."""
    return codec.decode(tokens[: i + 1])[len(codec.decode(tokens[:i])) :]


def _shared(on_progress: OnProgress | None, i: int, count: int) -> OnProgress:
    """Return a function that takes the share of window i that is done, and reports the share of the whole."""

    def follow(share: float) -> None:
        if on_progress is not None:
            on_progress((i + share) / count)

    return follow

"""Texts along the forward noise process, and denoised from there by a model: as lines in a terminal, and as pictures.

A path of noise is coherent: x_{t_k} ~ q(x_{t_k} | x_{t_{k−1}}), so a later state contains the noise of the earlier ones.
"""

import difflib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from rich.console import Console
from rich.text import Text
from torch import Tensor

from unnoise.apps.plots.tokens import Kind, Row, plot_rows
from unnoise.cli.command_base import visible
from unnoise.data import Codec
from unnoise.families.gaussian import Gaussian, GaussianNoise
from unnoise.method_table import method, methods
from unnoise.model.sampling_options import SamplingOptions
from unnoise.process import HybridNoise, Markov, Masked, Process, ProcessBase, Uniform
from unnoise.process.markov import mutual_information_schedule
from unnoise.rng import RowGenerator
from unnoise.sampler.sampling import sample_from
from unnoise.schedule import Linear

if TYPE_CHECKING:
    from unnoise.model.model import Model

ROWS = ("`1234567890-=", "qwertyuiop[]\\", "asdfghjkl;'", "zxcvbnm,./", " ")
SHIFTED = ("~!@#$%^&*()_+", "QWERTYUIOP{}|", 'ASDFGHJKL:"', "ZXCVBNM<>?")
OFFSETS = (0.0, 1.5, 1.75, 2.25, 6.25)  # offsets of the rows of a US keyboard, in key widths
SHIFT = 0.9  # distance between the two symbols of a key
NEIGHBOURS = 4
MOST_SYMBOLS = 128
CELLS = 16  # number of cells of the schedule's table


def symbol_points(symbols: list[str]) -> Tensor:
    """Return the positions of symbols on a keyboard, [K, 3], or in a row if some are not keys, [K, 1]."""
    keys = {
        key: (offset + column, float(row), shift)
        for rows, shift in ((ROWS, 0.0), (SHIFTED, SHIFT))
        for row, (line, offset) in enumerate(zip(rows, OFFSETS, strict=False))
        for column, key in enumerate(line)
    }
    if all(symbol in keys for symbol in symbols):
        return torch.tensor([keys[symbol] for symbol in symbols])
    return torch.arange(len(symbols), dtype=torch.float64)[:, None]


def nearest_symbols(codec: Codec) -> Markov:
    """Return noise between neighbouring symbols with D3PM's schedule, where I(x_t; x_0) decreases linearly in t."""
    if codec.vocab > MOST_SYMBOLS:
        raise ValueError(
            f"nearest-neighbour noise is for alphabets of at most {MOST_SYMBOLS} symbols such as text8's, found {codec.vocab}"
        )
    points = symbol_points([codec.show(token) for token in range(codec.vocab)])
    chain = Markov.nearest(points, Linear(), min(NEIGHBOURS, codec.vocab - 1))
    unigram = torch.full((codec.vocab,), 1 / codec.vocab, dtype=torch.float64)
    return Markov(chain.generator, mutual_information_schedule(chain, unigram, CELLS))


NOISES: dict[str, Callable[[Codec], ProcessBase]] = {
    "uniform": lambda codec: Uniform(codec.vocab, Linear()),
    "absorbing": lambda codec: Masked(codec.vocab, Linear()),
    "nearest-neighbour": nearest_symbols,
    "hybrid": lambda codec: HybridNoise(codec.vocab),
    "gaussian": lambda codec: Gaussian(codec.vocab),
}
BACK_ROW = 1  # row of the random numbers for denoising; row 0 is the noise's, so the two are independent
NoiseKind = Literal["kept", "noised", "mask"]


class NoisedText(NamedTuple):
    """A text at one time.

    tokens: tokens as they are shown.
    ids: token ids. The mask is K.
    kinds: whether each token is still that of x_0.
    """

    t: float
    tokens: list[str]
    ids: list[int]
    kinds: list[NoiseKind]

    @property
    def changed(self) -> int:
        """Number of tokens that differ from the text."""
        return sum(kind != "kept" for kind in self.kinds)


TokenNoise = Process | GaussianNoise  # replaces tokens, or their embeddings, in place


def noise_named(name: str, codec: Codec) -> TokenNoise:
    """Return the noise with this name for a codec, or the noise of a method. Raise ValueError for an unknown name."""
    if name in NOISES:
        return in_place(NOISES[name](codec), name)
    known = [*NOISES, *methods()]
    if name.partition(":")[0] not in known:
        near = difflib.get_close_matches(name, known, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"unknown noise {name!r}: {hint}use one of {', '.join(NOISES)}, or a method such as mdlm")
    return in_place(method(name).process(codec.vocab), name)


def in_place(process: ProcessBase, name: str) -> TokenNoise:
    """Return the process unchanged. Raise ValueError unless it replaces tokens in place."""
    if isinstance(process, TokenNoise):
        return process
    raise ValueError(f"{name} has no noise that replaces tokens in place: use one of {', '.join(NOISES)}, or mdlm")


class NoisePath:
    """One text at increasing times of the forward process.

    states: noised tokens [1, L] or embeddings [1, L, D] at each time.
    """

    def __init__(self, process: TokenNoise, codec: Codec, tokens: Sequence[int], times: Sequence[float], seed: int = 0):
        if not len(tokens):
            raise ValueError("there is no text to noise: it is empty")
        if not times or not all(0 <= t <= 1 for t in times) or not all(s < t for s, t in pairwise(times)):
            raise ValueError(f"times must rise within [0, 1], found {' '.join(f'{t:g}' for t in times) or 'none'}")
        if not 0 <= seed < 2**63:
            raise ValueError(f"a seed must lie between 0 and 2^63, found {seed}")
        self.process, self.codec, self.times, self.seed = process, codec, list(times), seed
        self.x = torch.tensor([list(map(int, tokens))], device=process.device)
        process.check_tokens(self.x)
        self.states: list[Tensor] = []
        self._sample()

    @torch.no_grad()
    def _sample(self) -> None:
        generator = RowGenerator(self.seed, torch.zeros(1, dtype=torch.long, device=self.x.device))
        state, shape, s = self.x, tuple(self.x.shape), None
        if isinstance(self.process, GaussianNoise):  # one time for each text, not for each position
            state, shape = self.process.table()[self.x], (1,)
        for time in self.times:
            t = torch.full(shape, time, dtype=torch.float64, device=self.x.device)
            state = self.process.noised(state, s, t, generator)
            self.states.append(state)
            s = t

    def shown(self, ids: Tensor, t: float) -> NoisedText:
        """Return a state [1, L] as it is shown."""
        original, listed, vocab = self.x[0].tolist(), ids[0].tolist(), self.codec.vocab
        kinds: list[NoiseKind] = [
            "kept" if token == before else "mask" if token >= vocab else "noised"
            for token, before in zip(listed, original, strict=True)
        ]
        return NoisedText(t, self.codec.show_states(listed), listed, kinds)

    def texts(self) -> list[NoisedText]:
        """Return the text at each time. A noised embedding is shown as the nearest token."""
        nearest = self.process.nearest if isinstance(self.process, GaussianNoise) else lambda state: state
        with torch.no_grad():
            return [self.shown(nearest(state), t) for state, t in zip(self.states, self.times, strict=True)]


def model_path(model: "Model", text: str, times: Sequence[float], seed: int = 0) -> NoisePath:
    """Return a path of a text along the noise of a model."""
    if model.codec.grid:
        raise ValueError("this is a model of images: noise is shown for texts")
    tokens = model.codec.encode(model.codec.with_leading_space(text)) if text else model.codec.encode(text)
    if len(tokens) > model.length:
        raise ValueError(f"a text for this model has at most {model.length} tokens, found {len(tokens)}")
    return NoisePath(in_place(model.process, model.method.name), model.codec, tokens.tolist(), times, seed)


def can_denoise_from(model: "Model") -> bool:
    """Return whether a model can denoise a partially noised text."""
    return isinstance(model.process, TokenNoise) and model.method.sampler.starts_at_any_time and not model.codec.grid


def denoise_from(model: "Model", path: NoisePath, options: SamplingOptions, moment: int = -1) -> Iterator[NoisedText]:
    """Yield the texts of the model's reverse process, from one moment of a path to t = 0, by the model's own sampler."""
    sampler = options.resolve(model.method.sampler)
    model.check_sampler(sampler)
    model.network.eval()
    frames = sample_from(
        model.process,
        model.denoiser.condition(model.label_number(options.label), options.guidance_scale),
        path.states[moment],
        path.times[moment],
        sampler=sampler,
        seed=options.seed,
        time_free=model.method.time_free,
        independent_rows=True,
        first_row=BACK_ROW,
    )
    return (path.shown(frame.x, frame.t) for frame in frames)


def moments(texts: Sequence[NoisedText], times: Sequence[float]) -> list[NoisedText]:
    """Return the denoised texts nearest to some times, each once, and the last text."""
    chosen = {min(range(len(texts)), key=lambda i: abs(texts[i].t - t)) for t in times} | {len(texts) - 1}
    return [texts[i] for i in sorted(chosen)]


STYLES = {"kept": "", "noised": "bold red", "mask": "dim"}
MARGIN = len("t = 0.00  100 %  ")
KINDS: dict[str, Kind] = {"kept": "plain", "noised": "changed", "mask": "mask"}
NAMES: dict[Kind, str] = {"mask": "mask", "changed": "replaced token"}


def line(noised: NoisedText, width: int) -> Text:
    """Return a noised text with its time, cut into lines by position, so that tokens stay in their columns."""
    share = 100 * noised.changed / len(noised.tokens)
    text, at = Text(f"t = {noised.t:.2f}  {share:3.0f} %  "), 0
    for token, kind in zip(noised.tokens, noised.kinds, strict=True):
        for character in visible(token, kind == "kept"):
            if at == max(1, width - MARGIN):
                text.append("\n" + " " * MARGIN)
                at = 0
            text.append(character, STYLES[kind])
            at += 1
    return text


def show_path(title: str, forward: Sequence[NoisedText], back_title: str, back: Sequence[NoisedText], console: Console) -> None:
    """Print the noised texts, then the denoised texts, if there are any."""
    for words, texts in ((title, forward), (back_title, back)):
        if texts:
            console.print(words, style="bold", highlight=False)
            for noised in texts:
                console.print(line(noised, console.width), highlight=False, soft_wrap=True)


def plot_path(path: Path, title: str, forward: Sequence[NoisedText], back: Sequence[NoisedText], *, dark: bool = False) -> None:
    """Draw the noised texts, and the denoised texts if there are any: a row for each time, a column for each token."""
    groups = {"": [_row(one) for one in forward]} | ({"and back": [_row(one) for one in back]} if back else {})
    plot_rows(path, title, groups, NAMES, together=True, dark=dark)


def _row(noised: NoisedText) -> Row:
    return Row(f"t = {noised.t:.2f}", noised.tokens, [KINDS[kind] for kind in noised.kinds])

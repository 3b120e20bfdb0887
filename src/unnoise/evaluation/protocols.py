"""Evaluation as the field does it, beside the true bound: the same windows, the published kind of figure, and what differs.

A published perplexity depends on how texts are cut, which tokens count, and which terms of the bound are left out. Here each
protocol states its choices; its figure is computed as its code computes it, and the bound on the same windows stands beside it.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unnoise.data.texts import thinned
from unnoise.evaluation.benchmarks import Benchmark, benchmark, documents
from unnoise.evaluation.chunks import Chunks, Wrapping, characters_of, chunk, pieces
from unnoise.evaluation.conditional import SETS, conditional
from unnoise.evaluation.published import Gap, PublishedLoss, gaps, published_nats
from unnoise.families.autoregressive import Autoregressive
from unnoise.model.draws import draws_for_error, estimate
from unnoise.model.model import Model
from unnoise.schedule import Linear

PASSES = 2  # of the published figure: the first is the figure, all of them give its mean and error


@dataclass(frozen=True)
class Protocol:
    """How one code base evaluates.

    wrapping: how documents become windows. loss: what is averaged, or None for the bound itself. stream: how one long text
    (text8, enwik8) becomes windows, where that differs. first_given: the first token of a window is never noised and not
    counted. bits: the figure is bits per token, not a perplexity. remark: what else sets it apart, in words.
    """

    name: str
    paper: str
    wrapping: Wrapping
    loss: PublishedLoss | None
    stream: Wrapping | None = None
    first_given: bool = False
    bits: bool = False
    remark: str = ""

    def wrapping_of(self, stream: bool) -> Wrapping:
        """How one long text, or documents, become windows."""
        return self.stream if stream and self.stream is not None else self.wrapping

    @property
    def words(self) -> str:
        """The protocol in a sentence."""
        noised = "all noised, padding not counted" if self.wrapping.padded else "all of them noised and counted"
        counted = ", the begin token given and not counted" if self.first_given else f", {noised}"
        loss = "every term of the bound" if self.loss is None else self.loss.words
        return "; ".join(part for part in (self.wrapping.words + counted, loss, self.remark) if part)


_PLAIN = Wrapping(ends=False, rows=None)
_AROUND = Wrapping(ends=False, around=True)
PROTOCOLS = {
    one.name: one
    for one in (
        Protocol("bound", "this package", Wrapping(ends=True, rows=None), None, stream=_PLAIN),
        Protocol("mdlm", "MDLM, arXiv:2406.07524", Wrapping(ends=True, around=True), PublishedLoss()),
        Protocol("mdlm-lm1b", "MDLM's runs on LM1B, arXiv:2406.07524", Wrapping(padded=True, around=True), PublishedLoss()),
        Protocol("sedd", "SEDD, arXiv:2310.16834", Wrapping(ends=True), PublishedLoss(), _PLAIN, remark="its training loss"),
        Protocol("bd3lm", "BD3-LM, arXiv:2503.09573", _AROUND, PublishedLoss(schedule=Linear), first_given=True),
        Protocol("duo", "Duo, arXiv:2506.10892", _AROUND, PublishedLoss()),
        Protocol(
            "md4",
            "MD4, arXiv:2406.04329",
            Wrapping(ends=True),
            PublishedLoss(start=0.0, reconstruction=True),
            Wrapping(ends=False, rows=None, whole_batches=512),
            bits=True,
            remark="a stream is cut without end tokens, in whole batches of 512",
        ),
    )
}


def protocol(name: str) -> Protocol:
    """A protocol by its name, or ValueError."""
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol {name!r}: use one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


@dataclass(frozen=True)
class Figure:
    """Nats of `tokens` tokens and their standard error by drawing; what is made of them."""

    nats: float
    stderr: float
    tokens: int

    def described(self, characters: float) -> dict[str, float]:
        """Nats a token, perplexity, bits a token and a character, each with its error."""
        each, error = self.nats / self.tokens, self.stderr / self.tokens
        return {
            "nats_per_token": each,
            "stderr": error,
            "perplexity": math.exp(min(each, 700)),
            "perplexity_stderr": math.exp(min(each, 700)) * error,
            "bits_per_token": each / math.log(2),
            "bits_per_char": self.nats / math.log(2) / characters,
            "bits_per_char_stderr": self.stderr / math.log(2) / characters,
        }


@dataclass(frozen=True)
class Evaluation:
    """What one protocol found: the published figure (first pass, and mean of passes), the bound, and the parts between them.

    windows: how many were measured, of those that the chunks hold. characters: of their text.
    """

    protocol: Protocol
    benchmark: Benchmark
    split: str
    chunks: Chunks
    windows: int
    characters: float
    published: float | None
    passes: Figure | None
    bound: Figure
    exact: bool
    draws: int
    gaps: list[Gap]

    @property
    def difference(self) -> tuple[float, float]:
        """Bound − published in nats a token, from its parts, and the error of that."""
        parts = sum(gap.nats for gap in self.gaps), math.sqrt(sum(gap.stderr**2 for gap in self.gaps))
        return parts[0] / self.bound.tokens, parts[1] / self.bound.tokens

    @property
    def is_bound(self) -> bool | None:
        """Whether the published kind of figure, on average, is not below the bound; None where the errors do not tell."""
        nats, error = self.difference
        return None if self.gaps and abs(nats) <= 2 * error else nats <= 0

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        tokens = self.bound.tokens
        found: dict[str, Any] = {
            "protocol": self.protocol.name,
            "benchmark": self.benchmark.name,
            "split": self.split,
            "windows": self.windows,
            "windows_in_all": len(self.chunks.x),
            "length": self.chunks.x.shape[1],
            "documents": self.chunks.documents,
            "dropped_tokens": self.chunks.dropped,
            "counted_tokens": tokens,
            "characters": self.characters,
            "bound": self.bound.described(self.characters) | {"exact": self.exact, "draws": self.draws},
        }
        if self.published is not None and self.passes is not None:
            once = Figure(self.published, 0.0, tokens).described(self.characters)
            found["published"] = {
                "unit": "bits_per_token" if self.protocol.bits else "perplexity",
                "value": once["bits_per_token" if self.protocol.bits else "perplexity"],
                "mean": self.passes.described(self.characters),
            }
            found["difference"] = {
                "bound_minus_published": self.difference[0],
                "stderr": self.difference[1],
                "is_bound": self.is_bound,
                "parts": {gap.name: {"nats_per_token": gap.nats / tokens, "words": gap.words} for gap in self.gaps},
            }
        return found


def evaluate(
    model: Model,
    name: str,
    data: str,
    benchmark_name: str | None = None,
    split: str | None = None,
    windows: int | None = None,
    draws: int = 16,
    passes: int = PASSES,
    seed: int = 0,
) -> Evaluation:
    """A model on a data set by one protocol, and by the bound on the same windows."""
    one, of = benchmark(benchmark_name, data), protocol(name)
    texts = documents(one, data, split)
    chunks = windows_of(model, of, one, texts)
    which = thinned(len(chunks.x), windows)
    characters = characters_of(chunks, model.codec, which)
    return _measure(model, of, one, split or one.split, chunks, which, characters, draws, passes, seed)


def windows_of(model: Model, of: Protocol, one: Benchmark, texts: list[str]) -> Chunks:
    """The windows of a data set by a protocol, of the model's length."""
    wrapping = of.wrapping_of(stream=one.stream and len(texts) == 1)
    if one.in_pieces and wrapping.around and wrapping.ends:
        texts = pieces(texts, model.length)
    if not wrapping.around and of.name == "bound" and model.codec.end is None:
        wrapping = _PLAIN
    return chunk(texts, model.codec, model.length, wrapping)


def _measure(
    model: Model,
    of: Protocol,
    one: Benchmark,
    split: str,
    chunks: Chunks,
    which: Tensor,
    characters: float,
    draws: int,
    passes: int,
    seed: int,
) -> Evaluation:
    x, counted = chunks.x[which], chunks.counted[which]
    known = torch.zeros_like(counted)
    known[:, 0] = of.first_given or (isinstance(model.bound, Autoregressive) and of.wrapping.around)
    tokens = int((counted & ~known).sum())
    bound, exact, drawn = _bound(model, x, known, draws, seed)
    published, repeated, parts = None, None, []
    if of.loss is not None:
        rows = [published_nats(model, of.loss, x, ~known, seed + 1 + i, counted) for i in range(max(passes, PASSES))]
        sums = [float(one.counted.sum()) for one in rows]
        published, repeated = sums[0], Figure(*_mean(sums), tokens)
        parts = gaps(model, of.loss, _mean([float(one.all.sum()) for one in rows])[0], x, ~known, max(2, draws // 4), seed)
        if not bool(counted.all()):
            padding = _mean([float((one.all - one.counted).sum()) for one in rows])
            parts.append(Gap("padding", *padding, "what it costs to tell where each text ends is left out"))
    return Evaluation(
        of, one, split, chunks, len(x), characters, published, repeated, Figure(*bound, tokens), exact, drawn, parts
    )


def _mean(values: list[float]) -> tuple[float, float]:
    """The mean, and its standard error."""
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((one - mean) ** 2 for one in values) / (len(values) - 1) / len(values))


def _bound(model: Model, x: Tensor, known: Tensor, draws: int, seed: int) -> tuple[tuple[float, float], bool, int]:
    """Nats of all windows and their error, whether they are exact, and the draws of each."""
    if bool(known.any()):
        sets = min(SETS, max(2, draws))
        found = conditional(model, x, known, max(draws, sets), seed, sets)
        return (float(found.nats.sum()), found.error), bool(found.exact.all()), int(found.draws.max())
    whole = estimate(model, x, max(draws, draws_for_error(model, *x.shape)), seed)
    return (float(whole.nats.sum()), whole.error), model.method.exact, whole.draws

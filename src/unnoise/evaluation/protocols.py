"""Evaluation as the field does it, beside the true bound: the same windows, the published kind of figure, and what differs.

A published perplexity depends on how texts are cut, which tokens count, and which terms of the bound are left out. Here each
protocol states its choices; its figure is computed as its code computes it, and the bound on the same windows stands beside it.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from unnoise.data import codec_kind
from unnoise.data.codec import SAMPLE
from unnoise.data.texts import thinned
from unnoise.evaluation.benchmarks import Benchmark, benchmark, documents
from unnoise.evaluation.chunks import Chunks, Wrapping, bytes_of, characters_of, chunk, pieces
from unnoise.evaluation.conditional import SETS, conditional
from unnoise.evaluation.protocol_table import PLAIN, PROTOCOLS, Protocol, protocol
from unnoise.evaluation.published import Gap, gaps, published_nats
from unnoise.evaluation.tokenizers import Tokenizer
from unnoise.families.autoregressive import Autoregressive
from unnoise.families.block import BlockElbo
from unnoise.model.draws import draws_for_error, estimate
from unnoise.model.model import Model

SAMPLED = 100  # documents by which it is seen whether a codec gives texts back
PASSES = 2  # of the published figure: the first is the figure, all of them give its mean and error


@dataclass(frozen=True)
class Figure:
    """Nats of `tokens` tokens and their standard error by drawing; what is made of them."""

    nats: float
    stderr: float
    tokens: int

    def described(self, characters: float, size: float | None = None) -> dict[str, float]:
        """Return nats per token, perplexity, bits per token, character and byte, each with its error.

        size: bytes of the text, where it has more of them than characters.
        """
        size = characters if size is None else size
        each, error = self.nats / self.tokens, self.stderr / self.tokens
        return {
            "nats_per_token": each,
            "stderr": error,
            "perplexity": math.exp(min(each, 700)),
            "perplexity_stderr": math.exp(min(each, 700)) * error,
            "bits_per_token": each / math.log(2),
            "bits_per_char": self.nats / math.log(2) / characters,
            "bits_per_char_stderr": self.stderr / math.log(2) / characters,
            "bits_per_byte": self.nats / math.log(2) / size,
            "bits_per_byte_stderr": self.stderr / math.log(2) / size,
        }


@dataclass(frozen=True)
class Evaluation:
    """What one protocol found: the published figure (first pass, and mean of passes), the bound, and the parts between them.

    windows: how many were measured, of those that the chunks hold. characters, bytes: of their text. tokenizer: what a token
    is. lossless: whether the codec gives the texts back as they are.
    """

    protocol: Protocol
    benchmark: Benchmark
    split: str
    chunks: Chunks
    windows: int
    characters: float
    bytes: float
    tokenizer: Tokenizer
    lossless: bool
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
            "bytes": self.bytes,
            "tokenizer": asdict(self.tokenizer),
            "lossless": self.lossless,
            "bound": self.bound.described(self.characters, self.bytes) | {"exact": self.exact, "draws": self.draws},
        }
        if self.published is not None and self.passes is not None:
            once = Figure(self.published, 0.0, tokens).described(self.characters, self.bytes)
            found["published"] = {
                "unit": "bits_per_token" if self.protocol.bits else "perplexity",
                "value": once["bits_per_token" if self.protocol.bits else "perplexity"],
                "perplexity": once["perplexity"],
                "bits_per_char": once["bits_per_char"],
                "bits_per_byte": once["bits_per_byte"],
                "mean": self.passes.described(self.characters, self.bytes),
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
    label: str | None = None,
) -> Evaluation:
    """Evaluate a model on a data set by one protocol, and by the bound on the same windows.

    label: how a model that cannot follow the protocol is named in the error.
    """
    one, of = benchmark(benchmark_name, data), protocol(name)
    check_follows(model, of, one, label)
    texts = documents(one, data, split)
    chunks = windows_of(model, of, one, texts)
    which = thinned(len(chunks.x), windows)
    lossless = all(model.codec.read_as(text[:SAMPLE]) is None for text in texts[:SAMPLED])
    sizes = characters_of(chunks, model.codec, which), bytes_of(chunks, model.codec, which)
    return _measure(model, of, one, split or one.split, chunks, which, sizes, lossless, draws, passes, seed)


def check_follows(model: Model, of: Protocol, one: Benchmark, label: str | None = None) -> None:
    """Raise ValueError, with the protocols that it can follow, unless a model can be evaluated by this one."""
    if reason := obstacle(model, of, one):
        able = [other.name for other in PROTOCOLS.values() if not obstacle(model, other, one)]
        instead = f"use --protocol {' or '.join(able)}" if able else "there is none that it can"
        name = label or f"this model of {model.method.name}"
        raise ValueError(f"{name} cannot follow the protocol {of.name} on {one.name}: {reason}; {instead}")


def obstacle(model: Model, of: Protocol, one: Benchmark) -> str:
    """Return the reason why a model cannot be evaluated by a protocol on a data set, empty where it can."""
    if model.codec.grid:
        return "it is a model of images, and protocols are for texts"
    wrapping = wrapping_of(model, of, one.stream)
    if (wrapping.around or wrapping.ends) and model.codec.divider is None:
        kind = f"its codec {codec_kind(model.codec)} has no end token"
        return f"{kind}, which the protocol puts between documents or around windows"
    if wrapping.around and model.length < 3:
        return f"its windows of {model.length} tokens have no room beside their begin and end tokens"
    if of.loss is not None and not isinstance(model.bound, Autoregressive | BlockElbo):
        return of.loss.obstacle(model)
    return ""


def windows_of(model: Model, of: Protocol, one: Benchmark, texts: list[str]) -> Chunks:
    """The windows of a data set by a protocol, of the model's length."""
    wrapping = wrapping_of(model, of, one.stream and len(texts) == 1)
    if one.in_pieces and wrapping.around and wrapping.ends:
        texts = pieces(texts, model.length)
    return chunk(texts, model.codec, model.length, wrapping)


def wrapping_of(model: Model, of: Protocol, stream: bool) -> Wrapping:
    """Return how texts become windows; the bound does without end tokens where the codec has none."""
    wrapping = of.wrapping_of(stream)
    return PLAIN if of.name == "bound" and model.codec.divider is None else wrapping


def _measure(
    model: Model,
    of: Protocol,
    one: Benchmark,
    split: str,
    chunks: Chunks,
    which: Tensor,
    sizes: tuple[float, float],
    lossless: bool,
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
        protocol=of,
        benchmark=one,
        split=split,
        chunks=chunks,
        windows=len(x),
        characters=sizes[0],
        bytes=sizes[1],
        tokenizer=Tokenizer.of(model.codec),
        lossless=lossless,
        published=published,
        passes=repeated,
        bound=Figure(*bound, tokens),
        exact=exact,
        draws=drawn,
        gaps=parts,
    )


def _mean(values: list[float]) -> tuple[float, float]:
    """The mean, and its standard error."""
    mean = sum(values) / len(values)
    return mean, math.sqrt(sum((one - mean) ** 2 for one in values) / (len(values) - 1) / len(values))


def _bound(model: Model, x: Tensor, known: Tensor, draws: int, seed: int) -> tuple[tuple[float, float], bool, int]:
    """Nats of all windows and their error, whether they are exact, and the draws of each."""
    if bool(known.any()):
        sets = min(SETS, max(2, draws))
        found = conditional(model, x, known, draws=max(draws, sets), seed=seed, sets=sets)
        return (float(found.nats.sum()), found.error), bool(found.exact.all()), int(found.draws.max())
    whole = estimate(model, x, max(draws, draws_for_error(model, *x.shape)), seed)
    return (float(whole.nats.sum()), whole.error), model.method.exact, whole.draws

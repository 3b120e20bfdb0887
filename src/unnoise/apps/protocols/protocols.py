"""Evaluation by the protocols of papers, next to the true bound on the same windows.

A published perplexity depends on how texts are cut into windows, which tokens count, and which terms of the bound are left out.
Each protocol states its choices. Its number is computed as the paper's code computes it, and reported next to the bound.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from unnoise.apps.protocols.published_nats import Difference, PublishedLoss, differences, mean_and_error, published_nats
from unnoise.apps.protocols.windows import (
    Benchmark,
    Chunks,
    Wrapping,
    benchmark,
    bytes_of,
    characters_of,
    chunk,
    documents,
    pieces,
)
from unnoise.data import codec_kind
from unnoise.data.codec import SAMPLE
from unnoise.data.texts import thinned
from unnoise.evaluation.conditional import SETS, conditional
from unnoise.evaluation.dataset import Tokenizer
from unnoise.families.autoregressive import Autoregressive
from unnoise.families.block_objective import BlockElbo
from unnoise.model.draws import draws_for_error, estimate
from unnoise.model.model import Model
from unnoise.schedule import Linear


@dataclass(frozen=True)
class Protocol:
    """Evaluation protocol of a paper's code.

    wrapping: rule for cutting documents into windows.
    loss: loss that is averaged, or None for the bound itself.
    stream: rule for one long text (text8, enwik8), if it differs.
    first_given: whether the first token of a window is never noised and not counted.
    bits: whether the published number is bits per token instead of a perplexity.
    remark: other properties.
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
        """Return the rule for one long text, or for documents."""
        return self.stream if stream and self.stream is not None else self.wrapping

    @property
    def description(self) -> str:
        """Description for the user."""
        noised = "all noised, padding not counted" if self.wrapping.padded else "all noised and counted"
        counted = ", the BOS token given and not counted" if self.first_given else f", {noised}"
        loss = "every term of the bound" if self.loss is None else self.loss.description
        return "; ".join(part for part in (self.wrapping.description + counted, loss, self.remark) if part)


SAMPLED = 100  # documents on which the codec is tested for losses
PLAIN = Wrapping(ends=False, rows=None)
_AROUND = Wrapping(ends=False, around=True)
PROTOCOLS = {
    one.name: one
    for one in (
        Protocol("bound", "this package", Wrapping(ends=True, rows=None), None, stream=PLAIN),
        Protocol("mdlm", "MDLM, arXiv:2406.07524", Wrapping(ends=True, around=True), PublishedLoss()),
        Protocol("mdlm-lm1b", "MDLM's runs on LM1B, arXiv:2406.07524", Wrapping(padded=True, around=True), PublishedLoss()),
        Protocol("sedd", "SEDD, arXiv:2310.16834", Wrapping(ends=True), PublishedLoss(), PLAIN, remark="its training loss"),
        Protocol("bd3lm", "BD3-LM, arXiv:2503.09573", _AROUND, PublishedLoss(schedule=Linear), first_given=True),
        Protocol("duo", "Duo, arXiv:2506.10892", _AROUND, PublishedLoss()),
        Protocol(
            "md4",
            "MD4, arXiv:2406.04329",
            Wrapping(ends=True),
            PublishedLoss(start=0.0, reconstruction=True),
            Wrapping(ends=False, rows=None, whole_batches=512),
            bits=True,
            remark="a stream is cut without EOS tokens, in whole batches of 512",
        ),
    )
}


def protocol(name: str) -> Protocol:
    """Return a protocol by its name, or raise ValueError."""
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol {name!r}: use one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]


@dataclass(frozen=True)
class Measurement:
    """Nats of a number of tokens, with their standard error over the draws."""

    nats: float
    stderr: float
    tokens: int

    def described(self, characters: float, size: float | None = None) -> dict[str, float]:
        """Return nats per token, perplexity, and bits per token, character and byte, with their errors.

        size: number of bytes of the text, by default its number of characters.
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
    """Result of an evaluation.

    chunks: all windows of the split.
    windows: number of windows that were measured.
    characters, bytes: size of their text.
    lossless: whether the codec reproduces the texts exactly.
    published: nats by the paper's formula in the first pass.
    passes: mean of all passes.
    bound: true bound.
    exact: whether the bound equals −log p.
    draws: number of draws of the bound for each window.
    differences: parts of bound − published.
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
    passes: Measurement | None
    bound: Measurement
    exact: bool
    draws: int
    differences: list[Difference]

    @property
    def difference(self) -> tuple[float, float]:
        """Sum of the parts of bound − published in nats per token, and its standard error."""
        parts = sum(part.nats for part in self.differences), math.sqrt(sum(part.stderr**2 for part in self.differences))
        return parts[0] / self.bound.tokens, parts[1] / self.bound.tokens

    @property
    def is_bound(self) -> bool | None:
        """True if the published number is at least the bound on average, None if the errors are too large to decide."""
        nats, error = self.difference
        return None if self.differences and abs(nats) <= 2 * error else nats <= 0

    def as_dict(self) -> dict[str, Any]:
        """Return the result for JSON."""
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
            once = Measurement(self.published, 0.0, tokens).described(self.characters, self.bytes)
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
                "parts": {
                    part.name: {"nats_per_token": part.nats / tokens, "words": part.description} for part in self.differences
                },
            }
        return found


@dataclass(frozen=True, kw_only=True)
class ProtocolOptions:
    """Options of an evaluation.

    protocol: name of the protocol.
    benchmark: name of the benchmark; default: the one named in the path of the data.
    split: split to evaluate; default: the benchmark's published split.
    windows: maximum number of windows, evenly spaced; by default all.
    draws: number of draws of the bound for each window.
    passes: number of passes for the published number. The first pass gives the number, all passes give its mean and error.
    """

    protocol: str = "mdlm"
    benchmark: str | None = None
    split: str | None = None
    windows: int | None = None
    draws: int = 16
    passes: int = 2
    seed: int = 0


def evaluate(model: Model, data: str, options: ProtocolOptions, *, label: str | None = None) -> Evaluation:
    """Evaluate a model on data by a protocol, and by the bound on the same windows.

    label: name of the model in the error if it cannot follow the protocol.
    """
    one, of = benchmark(options.benchmark, data), protocol(options.protocol)
    check_follows(model, of, one, label)
    texts = documents(one, data, options.split)
    chunks = windows_of(model, of, one, texts)
    which = thinned(len(chunks.x), options.windows)
    lossless = all(model.codec.read_as(text[:SAMPLE]) is None for text in texts[:SAMPLED])
    sizes = characters_of(chunks, model.codec, which), bytes_of(chunks, model.codec, which)
    x, counted = chunks.x[which], chunks.counted[which]
    known = torch.zeros_like(counted)
    known[:, 0] = of.first_given or (isinstance(model.bound, Autoregressive) and of.wrapping.around)
    tokens = int((counted & ~known).sum())
    seed = options.seed
    bound, exact, drawn = _bound(model, x, known, options.draws, seed)
    published, repeated, parts = None, None, []
    if of.loss is not None:
        rows = [
            published_nats(model, of.loss, x, ~known, seed=seed + 1 + i, counted=counted) for i in range(max(options.passes, 2))
        ]
        sums = [float(one.counted.sum()) for one in rows]
        published, repeated = sums[0], Measurement(*mean_and_error(sums), tokens)
        mean = sum(float(one.all.sum()) for one in rows) / len(rows)
        parts = differences(model, of.loss, mean, x, ~known, draws=max(2, options.draws // 4), seed=seed)
        if not bool(counted.all()):
            padding = mean_and_error([float((one.all - one.counted).sum()) for one in rows])
            parts.append(Difference("padding", *padding, "the cost of predicting where each text ends is left out"))
    return Evaluation(
        protocol=of,
        benchmark=one,
        split=options.split or one.split,
        chunks=chunks,
        windows=len(x),
        characters=sizes[0],
        bytes=sizes[1],
        tokenizer=Tokenizer.of(model.codec),
        lossless=lossless,
        published=published,
        passes=repeated,
        bound=Measurement(*bound, tokens),
        exact=exact,
        draws=drawn,
        differences=parts,
    )


def check_follows(model: Model, of: Protocol, one: Benchmark, label: str | None = None) -> None:
    """Raise ValueError unless a model can be evaluated by a protocol on a benchmark."""
    if reason := obstacle(model, of, one):
        able = [other.name for other in PROTOCOLS.values() if not obstacle(model, other, one)]
        instead = f"use --protocol {' or '.join(able)}" if able else "it can follow no protocol"
        name = label or f"this model of {model.method.name}"
        raise ValueError(f"{name} cannot follow the protocol {of.name} on {one.name}: {reason}; {instead}")


def obstacle(model: Model, of: Protocol, one: Benchmark) -> str:
    """Return why a model cannot be evaluated by a protocol on a benchmark, or an empty string if it can."""
    if model.codec.grid:
        return "it is a model of images, and protocols are for texts"
    wrapping = wrapping_of(model, of, one.stream)
    if (wrapping.around or wrapping.ends) and model.codec.divider is None:
        return (
            f"its codec {codec_kind(model.codec)} has no EOS token, which the protocol puts between documents or around windows"
        )
    if wrapping.around and model.length < 3:
        return f"its windows of {model.length} tokens have no room next to their BOS and EOS tokens"
    if of.loss is not None and not isinstance(model.bound, Autoregressive | BlockElbo):
        return of.loss.obstacle(model)
    return ""


def windows_of(model: Model, of: Protocol, one: Benchmark, texts: list[str]) -> Chunks:
    """Cut texts into windows of the model's length by a protocol."""
    wrapping = wrapping_of(model, of, one.stream and len(texts) == 1)
    if one.in_pieces and wrapping.around and wrapping.ends:
        texts = pieces(texts, model.length)
    return chunk(texts, model.codec, model.length, wrapping)


def wrapping_of(model: Model, of: Protocol, stream: bool) -> Wrapping:
    """Return the rule for cutting texts. The protocol `bound` uses no EOS tokens if the codec has none."""
    wrapping = of.wrapping_of(stream)
    return PLAIN if of.name == "bound" and model.codec.divider is None else wrapping


def _bound(model: Model, x: Tensor, known: Tensor, draws: int, seed: int) -> tuple[tuple[float, float], bool, int]:
    """Return the nats of all windows with their standard error, whether they are exact, and the draws for each window."""
    if bool(known.any()):
        sets = min(SETS, max(2, draws))
        found = conditional(model, x, known, draws=max(draws, sets), seed=seed, sets=sets)
        return (float(found.nats.sum()), found.error), bool(found.exact.all()), int(found.draws.max())
    whole = estimate(model, x, max(draws, draws_for_error(model, *x.shape)), seed)
    return (float(whole.nats.sum()), whole.spread.stderr), model.method.exact, whole.draws

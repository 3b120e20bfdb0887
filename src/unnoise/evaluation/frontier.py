"""Quality against variety: what a judge gives to texts, and their entropy, for each sampler over temperatures.

A judge's perplexity alone can be lowered by writing less varied texts, at a low temperature for instance. So a sampler is a
line of points (perplexity, entropy), and is better where its line lies lower at the same entropy (arXiv:2604.02718).
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from unnoise.evaluation.generative import OwnJudge
from unnoise.evaluation.mauve import features, mauve
from unnoise.model.model import Model
from unnoise.sampler import Sampler
from unnoise.sampler.float32_gumbel import Float32Gumbel

TEMPERATURES = (0.7, 0.8, 0.9, 1.0)
REAL = "real text"
ARTEFACT = "ancestral, float32 Gumbel"


class Point(NamedTuple):
    """Texts by one sampler at one temperature.

    perplexity: exp(nats / tokens) of all texts together, in the judge's own tokens. bits_per_char: the same in bits of a
    character. entropy: −Σ p log p in nats over the model's tokens of a text, the mean over texts. distinct_n: the share of
    sequences of n words that are distinct. mauve: against real texts, where that was asked for and can be had. The standard
    errors are those over texts.
    """

    sampler: str
    temperature: float
    perplexity: float
    bits_per_char: float
    entropy: float
    distinct_1: float
    distinct_2: float
    distinct_3: float
    mauve: float | None = None
    perplexity_stderr: float = 0.0
    entropy_stderr: float = 0.0


def token_entropy(row: Sequence[int]) -> float:
    """−Σ p log p in nats over the tokens of a text."""
    return -sum(n / len(row) * math.log(n / len(row)) for n in Counter(row).values())


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and its standard error."""
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return statistics.fmean(values), error


def ratio_error(above: Sequence[float], below: Sequence[float]) -> float:
    """The standard error of Σ above / Σ below, by its first derivative."""
    ratio = sum(above) / sum(below)
    left = [a - ratio * b for a, b in zip(above, below, strict=True)]
    return statistics.stdev(left) * math.sqrt(len(left)) / sum(below) if len(left) > 1 else 0.0


def distinct_n(texts: Sequence[str], n: int) -> float:
    """The share of sequences of n words that are distinct, over all texts together; no sequence crosses from one to another."""
    words = [text.split() for text in texts]
    grams = [tuple(row[i : i + n]) for row in words for i in range(len(row) - n + 1)]
    return len(set(grams)) / max(len(grams), 1)


def measured(
    texts: Sequence[str], model: Model, by: OwnJudge, sampler: str, temperature: float, real: np.ndarray | None = None
) -> Point:
    """The point of these texts, empty ones left out; real: features of texts that MAUVE compares them with."""
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ValueError(f"all texts by {sampler} at temperature {temperature:g} are empty: there is nothing to judge")
    nats, tokens, characters = zip(*(by.judged([text]) for text in texts), strict=True)
    entropy, entropy_error = mean_and_error([token_entropy(model.codec.encode(text).tolist()) for text in texts])
    perplexity = math.exp(sum(nats) / sum(tokens))
    return Point(
        sampler,
        temperature,
        perplexity,
        sum(nats) / math.log(2) / sum(characters),
        entropy,
        distinct_n(texts, 1),
        distinct_n(texts, 2),
        distinct_n(texts, 3),
        None if real is None else mauve(features(by.model, texts), real),
        perplexity * ratio_error(nats, tokens),
        entropy_error,
    )


def frontier(
    model: Model,
    by: OwnJudge,
    samplers: Sequence[str],
    temperatures: Sequence[float] = TEMPERATURES,
    steps: int = 128,
    samples: int = 16,
    seed: int = 0,
    real: np.ndarray | None = None,
    float32_gumbel: bool = False,
) -> Iterator[Point]:
    """A point for each sampler and temperature. float32_gumbel: ancestral draws by float32 Gumbel noise, as in some papers'
    code, which loses rare tokens: only to reproduce that artefact."""
    chosen: list[tuple[str, str | Sampler]] = [(name, name) for name in samplers or [model.own_sampler]]
    for name, _ in chosen:
        model.check_sampler(name)
    if float32_gumbel:
        if any(name != "ancestral" for name, _ in chosen):
            raise ValueError("float32 Gumbel noise is an artefact of ancestral samplers: name ancestral alone with it")
        chosen = [(ARTEFACT, Float32Gumbel(steps=steps))]
        model.check_sampler(chosen[0][1])
    for name, sampler in chosen:
        for temperature in temperatures:
            texts = model.generate(samples, steps=steps, sampler=sampler, temperature=temperature, top_p=1.0, seed=seed)
            yield measured(texts, model, by, name, temperature, real)


def best(points: Sequence[Point]) -> list[Point]:
    """The points that no other beats in both: none has at most their perplexity and at least their entropy, and differs."""
    return [
        one
        for one in points
        if not any(
            other.perplexity <= one.perplexity
            and other.entropy >= one.entropy
            and (other.perplexity, other.entropy) != (one.perplexity, one.entropy)
            for other in points
        )
    ]

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

from unnoise.evaluation.generative import OwnJudge, judged_texts
from unnoise.evaluation.mauve import features, mauve
from unnoise.evaluation.saved_points import SavedPoints, fingerprint
from unnoise.model.model import Model
from unnoise.sampler import Sampler
from unnoise.sampler.float32_gumbel import Float32Gumbel

TEMPERATURES = (0.7, 0.8, 0.9, 1.0)
ARTEFACT = "ancestral, float32 Gumbel"


class Point(NamedTuple):
    """Texts by one sampler at one temperature.

    perplexity: exp(nats / tokens) of all texts together, in the judge's own tokens. bits_per_char: the same in bits of a
    character. entropy: −Σ p log p in nats over the model's tokens of a text, the mean over texts. distinct_n: the share of
    sequences of n words that are distinct. mauve: against real texts, where that was asked for and can be had. The standard
    errors are over texts. left_out: number of texts that are empty or outside the judge's alphabet. model: name of the model,
    where there are several.
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
    left_out: int = 0
    model: str = ""


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
    texts: Sequence[str],
    model: Model,
    by: OwnJudge,
    sampler: str,
    temperature: float,
    real: np.ndarray | None = None,
    name: str = "",
) -> Point:
    """Return the point of these texts. real: features of texts that MAUVE compares them with. name: of the model."""
    written = len(texts)
    texts = judged_texts(texts, by, f"{sampler} at temperature {temperature:g}")
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
        written - len(texts),
        name,
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
    *,
    name: str = "",
    saved: SavedPoints[Point] | None = None,
) -> Iterator[Point]:
    """Yield a point for each sampler and temperature.

    float32_gumbel: ancestral draws by float32 Gumbel noise, as in some papers' code, which loses rare tokens: only to
    reproduce that artefact.
    name: name of the model in the results.
    saved: points that are not measured again, and file to which new ones are added.
    """
    chosen: list[tuple[str, str | Sampler]] = [(one, one) for one in samplers or [model.own_sampler]]
    for sampler, _ in chosen:
        model.check_sampler(sampler)
    if float32_gumbel:
        if any(sampler != "ancestral" for sampler, _ in chosen):
            raise ValueError("float32 Gumbel noise is an artefact of ancestral samplers: name ancestral alone with it")
        chosen = [(ARTEFACT, Float32Gumbel(steps=steps))]
        model.check_sampler(chosen[0][1])
    about = {"model": name, "steps": steps, "samples": samples, "seed": seed, "mauve": real is not None}
    if saved is not None:
        about["weights"] = fingerprint(model)
    for title, sampler in chosen:
        for temperature in temperatures:

            def measure(title: str = title, sampler: str | Sampler = sampler, temperature: float = temperature) -> Point:
                texts = model.generate(samples, steps=steps, sampler=sampler, temperature=temperature, top_p=1.0, seed=seed)
                return measured(texts, model, by, title, temperature, real, name)

            yield measure() if saved is None else saved.get(measure, **about, sampler=title, temperature=temperature)


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

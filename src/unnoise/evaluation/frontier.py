"""Quality against variety: what a judge gives to texts, and their entropy, for each sampler over temperatures.

A judge's perplexity alone can be lowered by writing less varied texts, at a low temperature for instance. So a sampler is a
line of points (perplexity, entropy), and is better where its line lies lower at the same entropy (arXiv:2604.02718).
"""

import importlib
import importlib.util
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from unnoise.evaluation.generative import OwnJudge
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
    sequences of n words that are distinct. mauve: against real texts, where that was asked for and can be had.
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


def token_entropy(rows: Sequence[Sequence[int]]) -> float:
    """−Σ p log p in nats over the tokens of each text, the mean over texts."""
    found = []
    for row in rows:
        total = max(len(row), 1)
        found.append(-sum(n / total * math.log(n / total) for n in Counter(row).values()))
    return sum(found) / max(len(found), 1)


def distinct_n(texts: Sequence[str], n: int) -> float:
    """The share of sequences of n words that are distinct, over all texts together; no sequence crosses from one to another."""
    words = [text.split() for text in texts]
    grams = [tuple(row[i : i + n]) for row in words for i in range(len(row) - n + 1)]
    return len(set(grams)) / max(len(grams), 1)


def measured(
    texts: Sequence[str], model: Model, by: OwnJudge, sampler: str, temperature: float, real: Sequence[str] | None = None
) -> Point:
    """The point of these texts; real: what MAUVE compares them with."""
    nats, tokens, characters = by.judged(texts)
    rows = [model.codec.encode(text).tolist() for text in texts]
    return Point(
        sampler,
        temperature,
        math.exp(nats / tokens),
        nats / math.log(2) / characters,
        token_entropy(rows),
        distinct_n(texts, 1),
        distinct_n(texts, 2),
        distinct_n(texts, 3),
        None if real is None else mauve(texts, real),
    )


def frontier(
    model: Model,
    by: OwnJudge,
    samplers: Sequence[str],
    temperatures: Sequence[float] = TEMPERATURES,
    steps: int = 128,
    samples: int = 16,
    seed: int = 0,
    real: Sequence[str] | None = None,
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


def can_mauve() -> bool:
    """Whether MAUVE can be computed: the package mauve-text is there."""
    return importlib.util.find_spec("mauve") is not None


def mauve(texts: Sequence[str], real: Sequence[str]) -> float:
    """MAUVE of written texts against as many real ones (arXiv:2102.01454), by the defaults of the package: GPT-2 large."""
    count = min(len(texts), len(real))
    package: Any = importlib.import_module("mauve")
    try:
        found = package.compute_mauve(p_text=list(real[:count]), q_text=list(texts[:count]), verbose=False)
    except OSError as error:
        raise ValueError(f"MAUVE needs GPT-2 large, which cannot be loaded here: {error}") from error
    return float(found.mauve)

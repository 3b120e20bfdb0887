"""How good written texts are: what a judge thinks of them, with their variety beside it.

A judge's perplexity alone can be had by writing the same easy words for ever, so the entropy of the texts' characters and the
share of distinct words always stand beside it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from unnoise.model.io import load
from unnoise.model.likelihood import Score
from unnoise.model.model import Model

JUDGE = "wiki-ar"  # the bundled judge
COMPARED = ("ancestral", "first-hitting", "confidence", "entropy-bounded", "remasking")
BY_TOKEN = ("first-hitting", "left-to-right")  # one call for each token, however many steps are asked for
CALLS = (16, 32, 64, 128, 256)


class Judge(Protocol):
    """Whoever can say how likely a text is."""

    def bits_per_char(self, texts: Sequence[str]) -> float:
        """−log₂ p of the texts for each character of them."""
        ...


class OwnJudge:
    """A model with an exact likelihood: ours, or a language model from elsewhere, judged after its begin token."""

    def __init__(self, model: Model):
        if not model.method.exact:
            raise ValueError(f"a judge needs an exact likelihood, such as a model of ar; {model.method.name} has only a bound")
        self.model = model

    def bits_per_char(self, texts: Sequence[str]) -> float:
        """Exact, each text by itself."""
        return self._score(texts).bits_per_char

    def judged(self, texts: Sequence[str]) -> tuple[float, int, int]:
        """Nats of all texts, and how many tokens of the judge's own codec, and characters, they have."""
        score = self._score(texts)
        return score.nats, sum(len(self.model.codec.encode(text)) for text in texts), score.characters

    def _score(self, texts: Sequence[str]) -> Score:
        score = self.model.score(texts)
        if score.read is not None:
            raise ValueError("the judge has another alphabet than these texts: use a judge with the same codec")
        return score


def judge(name: str | Path = JUDGE) -> Judge:
    """A judge by its name: a bundled model, smollm2 (the extra `eval`), or whatever else `load` opens."""
    return OwnJudge(load(name))


class Quality(NamedTuple):
    """Texts by one sampler: the network calls allowed for each, the judge's perplexity a character, the entropy of the
    characters in bits, and how many of the words are distinct."""

    sampler: str
    calls: int
    perplexity: float
    entropy: float
    distinct: float


def entropy(texts: Sequence[str]) -> float:
    """Bits of the distribution of single characters, −Σ p log₂ p."""
    counts = Counter("".join(texts))
    total = sum(counts.values())
    return -sum(n / total * math.log2(n / total) for n in counts.values())


def distinct(texts: Sequence[str]) -> float:
    """The share of words that are distinct, over all texts together."""
    words = " ".join(texts).split()
    return len(set(words)) / max(len(words), 1)


def weigh(texts: Sequence[str], by: Judge, sampler: str = "real text", calls: int = 0) -> Quality:
    """Texts of any origin."""
    return Quality(sampler, calls, 2 ** by.bits_per_char(texts), entropy(texts), distinct(texts))


def qualities(
    model: Model,
    by: Judge,
    samplers: Sequence[str] = (),
    calls: Sequence[int] = CALLS,
    samples: int = 16,
    seed: int = 0,
) -> Iterator[Quality]:
    """Texts by each sampler at each number of calls; by default by those of `COMPARED` that serve the model.

    Nothing that the model recommends shapes them: it is the samplers that are compared.
    """
    for name in samplers or [name for name in COMPARED if name in model.samplers] or [model.own_sampler]:
        for most in (model.length,) if name in BY_TOKEN else calls:
            texts = model.generate(samples, steps=most, sampler=name, temperature=1.0, top_p=1.0, seed=seed)
            yield weigh(texts, by, name, most)

"""How good written texts are: what a judge thinks of them, with their variety beside it.

A judge's perplexity alone can be had by writing the same easy words for ever, so the entropy of the texts' characters and the
share of distinct words always stand beside it.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from unnoise.evaluation.saved_points import SavedPoints, fingerprint
from unnoise.model.io import load
from unnoise.model.likelihood import Score
from unnoise.model.model import Model

JUDGE = "wiki-ar"  # the bundled judge
REAL = "real text"
COMPARED = ("ancestral", "first-hitting", "confidence", "entropy-bounded", "remasking")
BY_TOKEN = ("first-hitting", "left-to-right")  # one call for each token, however many steps are asked for
CALLS = (16, 32, 64, 128, 256)
OTHER_ALPHABET = "the judge has another alphabet than these texts: use a judge with the same codec"


class Judge(Protocol):
    """A distribution of texts."""

    def reads(self, text: str) -> bool:
        """Return whether the alphabet of the judge holds a text as it is."""
        ...

    def bits_per_char(self, texts: Sequence[str]) -> float:
        """−log₂ p of the texts for each character of them."""
        ...


class OwnJudge:
    """A model with an exact likelihood: ours, or a language model from elsewhere, judged after its begin token."""

    def __init__(self, model: Model):
        if not model.method.exact:
            raise ValueError(f"a judge needs an exact likelihood, such as a model of ar; {model.method.name} has only a bound")
        self.model = model

    def reads(self, text: str) -> bool:
        """Return whether encoding changes nothing in a text."""
        return self.model.codec.read_as(text) is None

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
            raise ValueError(OTHER_ALPHABET)
        return score


def judge(name: str | Path = JUDGE) -> Judge:
    """A judge by its name: a bundled model, smollm2 (the extra `eval`), or whatever else `load` opens."""
    return OwnJudge(load(name))


class Quality(NamedTuple):
    """Quality of texts by one sampler.

    sampler: its name.
    calls: network calls allowed for each text.
    perplexity: the judge's, a character.
    entropy: of the characters, in bits.
    distinct: share of distinct words.
    left_out: number of texts that are empty, or that the judge's alphabet does not hold; nothing else is about them.
    model: name of the model, where there are several.
    """

    sampler: str
    calls: int
    perplexity: float
    entropy: float
    distinct: float
    left_out: int = 0
    model: str = ""


def entropy(texts: Sequence[str]) -> float:
    """Bits of the distribution of single characters, −Σ p log₂ p."""
    counts = Counter("".join(texts))
    total = sum(counts.values())
    return -sum(n / total * math.log2(n / total) for n in counts.values())


def distinct(texts: Sequence[str]) -> float:
    """The share of words that are distinct, over all texts together."""
    words = " ".join(texts).split()
    return len(set(words)) / max(len(words), 1)


def judged_texts(texts: Sequence[str], by: Judge, origin: str) -> list[str]:
    """Return the texts that can be judged; raise ValueError if there is none.

    Empty texts, and texts with symbols that the judge's alphabet lacks, cannot.
    """
    written = [text for text in texts if text.strip()]
    if not written:
        raise ValueError(f"all texts by {origin} are empty: there is nothing to judge")
    kept = [text for text in written if by.reads(text)]
    if not kept:
        raise ValueError(OTHER_ALPHABET)
    return kept


def weigh(texts: Sequence[str], by: Judge, sampler: str = REAL, calls: int = 0, model: str = "") -> Quality:
    """Return the quality of texts of any origin."""
    kept = judged_texts(texts, by, sampler)
    left_out = len(texts) - len(kept)
    return Quality(sampler, calls, 2 ** by.bits_per_char(kept), entropy(kept), distinct(kept), left_out, model)


def qualities(
    model: Model,
    by: Judge,
    samplers: Sequence[str] = (),
    calls: Sequence[int] = CALLS,
    samples: int = 16,
    seed: int = 0,
    *,
    name: str = "",
    saved: SavedPoints[Quality] | None = None,
) -> Iterator[Quality]:
    """Yield the quality of texts by each sampler at each number of calls.

    The default samplers are those of `COMPARED` that serve the model.

    The sampling options that a model recommends have no effect here.

    name: name of the model in the results.
    saved: points that are not measured again, and file to which new ones are added.
    """
    about = {} if saved is None else {"model": name, "weights": fingerprint(model), "samples": samples, "seed": seed}
    for sampler in samplers or [one for one in COMPARED if one in model.samplers] or [model.own_sampler]:
        for most in (model.length,) if sampler in BY_TOKEN else calls:

            def measure(sampler: str = sampler, most: int = most) -> Quality:
                texts = model.generate(samples, steps=most, sampler=sampler, temperature=1.0, top_p=1.0, seed=seed)
                return weigh(texts, by, sampler, most, name)

            yield measure() if saved is None else saved.get(measure, **about, sampler=sampler, calls=most)

"""Quality and variety of generated texts.

A sampler can lower the perplexity that a judge assigns to its texts by repeating a few easy words. So perplexity is always
reported together with the entropy of the texts and the share of distinct words.

MAUVE (arXiv:2102.01454, needs mauve-text) compares generated texts with real texts by the judge's last hidden state at the
last token, the input of the output head. Papers use GPT-2 large as judge: compare results only for the same judge and the same
number of texts.
"""

import importlib
import importlib.util
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from unnoise.families.autoregressive import next_token_denoiser
from unnoise.model.model import Model
from unnoise.network.layers import normalize

JUDGE = "wiki-ar"  # the bundled judge
REAL = "real text"
OTHER_ALPHABET = "the alphabet of the judge differs from that of these texts: use a judge with the same codec"
FEWEST = 20  # texts of each kind, as the package uses one cluster for ten texts


class LikelihoodJudge:
    """A judge of texts: a model with an exact likelihood, of this package or a published language model."""

    def __init__(self, model: Model):
        if not model.method.exact:
            raise ValueError(f"a judge needs an exact likelihood, such as a model of ar; {model.method.name} has only a bound")
        self.model = model

    def reads(self, text: str) -> bool:
        """Return whether the judge's codec encodes a text without changes."""
        return self.model.codec.read_as(text) is None

    def judged(self, text: str) -> tuple[float, int, int]:
        """Return −log p(text) in nats, and the numbers of the judge's tokens and of characters."""
        score = self.model.score([text])
        if score.read is not None:
            raise ValueError(OTHER_ALPHABET)
        return score.nats, len(self.model.codec.encode(text)), score.characters


class TextMeasures(NamedTuple):
    """Measures of the texts of one sampler. The standard errors are over texts.

    sampler: name of the sampler.
    temperature: sampling temperature.
    calls: maximum number of network calls per text, 0 for real texts.
    perplexity: exp(nats / tokens) of all texts together, in the judge's tokens.
    bits_per_char: the judge's bits per character.
    entropy: −Σ p log p in nats over the model's tokens of a text, the mean over texts.
    char_entropy: −Σ p log₂ p in bits over the characters of all texts.
    distinct_1, distinct_2, distinct_3: share of sequences of n words that are distinct.
    mauve: MAUVE against real texts, if it was computed.
    left_out: number of texts that were not judged: empty texts, and texts outside the judge's alphabet.
    model: name of the model, if there are several.
    """

    sampler: str
    temperature: float
    calls: int
    perplexity: float
    bits_per_char: float
    entropy: float
    char_entropy: float
    distinct_1: float
    distinct_2: float
    distinct_3: float
    mauve: float | None = None
    perplexity_stderr: float = 0.0
    entropy_stderr: float = 0.0
    left_out: int = 0
    model: str = ""

    @property
    def char_perplexity(self) -> float:
        """The judge's perplexity per character."""
        return 2**self.bits_per_char


def char_entropy(texts: Sequence[str]) -> float:
    """Return the entropy of the distribution of single characters, −Σ p log₂ p, in bits."""
    counts = Counter("".join(texts))
    total = sum(counts.values())
    return -sum(n / total * math.log2(n / total) for n in counts.values())


def token_entropy(row: Sequence[int]) -> float:
    """Return −Σ p log p over the tokens of a text, in nats."""
    return -sum(n / len(row) * math.log(n / len(row)) for n in Counter(row).values())


def distinct_n(texts: Sequence[str], n: int) -> float:
    """Return the share of sequences of n words that are distinct, over all texts. No sequence spans two texts."""
    words = [text.split() for text in texts]
    grams = [tuple(row[i : i + n]) for row in words for i in range(len(row) - n + 1)]
    return len(set(grams)) / max(len(grams), 1)


def ratio_error(above: Sequence[float], below: Sequence[float]) -> float:
    """Return the standard error of Σ above / Σ below, by the delta method."""
    ratio = sum(above) / sum(below)
    left = [a - ratio * b for a, b in zip(above, below, strict=True)]
    return statistics.stdev(left) * math.sqrt(len(left)) / sum(below) if len(left) > 1 else 0.0


def measure_texts(
    texts: Sequence[str],
    model: Model,
    judge: LikelihoodJudge,
    *,
    sampler: str = REAL,
    temperature: float = 1.0,
    calls: int = 0,
    real: np.ndarray | None = None,
    name: str = "",
) -> TextMeasures:
    """Measure texts. Raise ValueError if the judge can judge none of them.

    model: model whose tokens are counted for the entropy.
    real: features of real texts, for MAUVE.
    name: name of the model in the result.
    """
    count = len(texts)
    texts = [text for text in texts if text.strip()]
    if not texts:
        raise ValueError(f"all texts by {sampler} at temperature {temperature:g} are empty: there is nothing to judge")
    texts = [text for text in texts if judge.reads(text)]
    if not texts:
        raise ValueError(OTHER_ALPHABET)
    nats, tokens, characters = zip(*map(judge.judged, texts), strict=True)
    entropies = [token_entropy(model.codec.encode(text).tolist()) for text in texts]
    perplexity = math.exp(sum(nats) / sum(tokens))
    return TextMeasures(
        sampler=sampler,
        temperature=temperature,
        calls=calls,
        perplexity=perplexity,
        bits_per_char=sum(nats) / math.log(2) / sum(characters),
        entropy=statistics.fmean(entropies),
        char_entropy=char_entropy(texts),
        distinct_1=distinct_n(texts, 1),
        distinct_2=distinct_n(texts, 2),
        distinct_3=distinct_n(texts, 3),
        mauve=None if real is None else mauve(features(judge.model, texts), real),
        perplexity_stderr=perplexity * ratio_error(nats, tokens),
        entropy_stderr=statistics.stdev(entropies) / math.sqrt(len(entropies)) if len(entropies) > 1 else 0.0,
        left_out=count - len(texts),
        model=name,
    )


# ---- MAUVE ---------------------------------------------------------------------------------------------------------------


def can_mauve() -> bool:
    """Return whether mauve-text is installed."""
    return importlib.util.find_spec("mauve") is not None


@torch.no_grad()
def features(judge: Model, texts: Sequence[str]) -> np.ndarray:
    """Return the judge's hidden state at the last token of each text, cut to the judge's length: [N, W] float32."""
    network = judge.network.eval()
    parts = dict(network.named_children())
    blocks = parts.get("blocks")
    if not isinstance(blocks, nn.ModuleList):
        raise ValueError("MAUVE needs the hidden states of a judge with blocks, such as the networks of this package")
    states: list[Tensor] = []
    reader = next_token_denoiser(judge.denoiser, "MAUVE")
    handle = blocks[-1].register_forward_hook(lambda module, inputs, output: states.append(output[:, -1]))
    try:
        for text in texts:
            tokens = torch.from_numpy(judge.codec.encode(text)[: judge.length - 1])[None].to(judge.device)
            start = torch.full_like(tokens[:, :1], judge.process.vocab)
            reader.next_token(torch.cat([start, tokens], 1), None)
    finally:
        handle.remove()
    norm = parts.get("norm", normalize)
    return norm(torch.cat(states)).float().cpu().numpy()


def mauve(written: np.ndarray, real: np.ndarray) -> float:
    """Return MAUVE of the features of generated and real texts, with the defaults of the package."""
    count = min(len(written), len(real))
    if count < FEWEST:
        raise ValueError(f"MAUVE compares clusters of texts and needs at least {FEWEST} of each kind, found {count}")
    package: Any = importlib.import_module("mauve")
    return float(package.compute_mauve(p_features=real[:count], q_features=written[:count], verbose=False).mauve)

"""Quality and variety of generated texts.

A sampler can lower the perplexity that a judge assigns to its texts by repeating a few easy words. So perplexity is always
reported together with the entropy of the texts and the share of distinct words.

MAUVE of generated texts against real texts (arXiv:2102.01454), from hidden states of the judge. Needs mauve-text.

The features of a text are the judge's last hidden state at the last token, the input of the output head. Papers use GPT-2 large
as judge: compare results only for the same judge and the same number of texts.

Results in a JSON file that is written after each of them, so that an interrupted run can continue.
"""

import hashlib
import importlib
import importlib.util
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from unnoise.families.autoregressive import next_token_denoiser
from unnoise.files import check_writable, read_bytes, write_atomically
from unnoise.model.model import Model
from unnoise.network.layers import normalise
from unnoise.sampler import Sampler

FEWEST = 20  # texts of each kind, as the package uses one cluster for ten texts


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
    norm = parts.get("norm", normalise)
    return norm(torch.cat(states)).float().cpu().numpy()


def mauve(written: np.ndarray, real: np.ndarray) -> float:
    """Return MAUVE of the features of generated and real texts, with the defaults of the package."""
    count = min(len(written), len(real))
    if count < FEWEST:
        raise ValueError(f"MAUVE compares clusters of texts and needs at least {FEWEST} of each kind, found {count}")
    package: Any = importlib.import_module("mauve")
    return float(package.compute_mauve(p_features=real[:count], q_features=written[:count], verbose=False).mauve)


FORMAT = "unnoise-points-1"
LARGEST = 2**26  # largest size of the file in bytes


class Measured(Protocol):
    """Named tuple of plain values."""

    def _asdict(self) -> dict[str, Any]: ...


P = TypeVar("P", bound=Measured)


def fingerprint(model: Model) -> str:
    """Return a hash of a model's method, codec, length and weights."""
    found = hashlib.sha256(json.dumps([model.method.name, model.codec.identity(), model.length]).encode())
    for name, value in sorted(model.weights().items()):
        found.update(f"{name} {value.dtype} {list(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


class SavedPoints(Generic[P]):
    """Results in a file, each with the settings that it depends on.

    path: file to read, if it exists, and to write.
    make: class of the results.
    shared: settings that all results depend on.
    """

    def __init__(self, path: Path, make: Callable[..., P], **shared: Any):
        check_writable(path, (".json",))
        self.path, self.make, self.shared = path, make, shared
        self.points: list[dict[str, Any]] = _read(path) if path.exists() else []
        self.found = 0  # results that were not computed again

    def get(self, measure: Callable[[], P], **about: Any) -> P:
        """Return the saved result of these settings, or compute and save it."""
        settings = json.loads(json.dumps(self.shared | about))
        for one in self.points:
            if one["settings"] == settings:
                self.found += 1
                return self.make(**one["point"])
        point = measure()
        self.points.append({"settings": settings, "point": point._asdict()})
        content = {"format": FORMAT, "points": self.points}
        write_atomically(self.path, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
        return point


def _read(path: Path) -> list[dict[str, Any]]:
    """Return the results in a file, or raise ValueError, so that no other file is overwritten."""
    try:
        content = json.loads(read_bytes(path, LARGEST))
        if content["format"] != FORMAT or not all(one.keys() == {"settings", "point"} for one in content["points"]):
            raise KeyError("format")
        return content["points"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path} exists and holds no measured points: choose another --out, or move it") from error


JUDGE = "wiki-ar"  # the bundled judge
REAL = "real text"
COMPARED = ("ancestral", "first-hitting", "confidence", "entropy-bounded", "remasking")
BY_TOKEN = ("first-hitting", "left-to-right")  # samplers that take one network call per token
CALLS = (16, 32, 64, 128, 256)
TEMPERATURES = (0.7, 0.8, 0.9, 1.0)
OTHER_ALPHABET = "the judge has another alphabet than these texts: use a judge with the same codec"


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


@dataclass(frozen=True, kw_only=True)
class FrontierOptions:
    """Options for measuring a model's samples.

    samplers: names of samplers. By default, those of `COMPARED` that the model supports (`qualities`), or the model's own.
    calls: largest numbers of network calls, for `qualities`.
    temperatures: temperatures, for `frontier`.
    steps: largest number of network calls, for `frontier`.
    num_samples: number of texts for each result.
    float32_gumbel: whether to draw with float32 Gumbel noise, for `frontier`. Some papers' code does so and loses rare tokens.
        Use it only to reproduce that artefact.
    """

    samplers: Sequence[str] = ()
    calls: Sequence[int] = CALLS
    temperatures: Sequence[float] = TEMPERATURES
    steps: int = 128
    num_samples: int = 16
    seed: int = 0
    float32_gumbel: bool = False


class TextMeasures(NamedTuple):
    """Measures of the texts of one sampler. The standard errors are over texts.

    sampler: name of the sampler.
    temperature: sampling temperature.
    calls: largest number of network calls per text, 0 for real texts.
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


@dataclass(frozen=True, kw_only=True)
class SampleSettings:
    """Settings of the texts of one result. title: name of the sampler in the result."""

    title: str
    sampler: str | Sampler
    steps: int
    temperature: float = 1.0


def measure_samples(
    model: Model,
    judge: LikelihoodJudge,
    options: FrontierOptions,
    settings: Sequence[SampleSettings],
    *,
    real: np.ndarray | None = None,
    name: str = "",
    saved: SavedPoints[TextMeasures] | None = None,
) -> Iterator[TextMeasures]:
    """Yield the measures of samples for each of several settings. The model's recommended sampling options have no effect.

    saved: results that are not computed again, and the file to which new ones are added.
    """
    shared = {"model": name, "samples": options.num_samples, "seed": options.seed, "mauve": real is not None}
    if saved is not None:
        shared["weights"] = fingerprint(model)
    for one in settings:

        def measure(one: SampleSettings = one) -> TextMeasures:
            drawn = {"steps": one.steps, "sampler": one.sampler, "temperature": one.temperature}
            texts = model.generate(options.num_samples, top_p=1.0, seed=options.seed, **drawn)
            about = {"sampler": one.title, "temperature": one.temperature, "calls": one.steps}
            return measure_texts(texts, model, judge, real=real, name=name, **about)

        about = {"sampler": one.title, "steps": one.steps, "temperature": one.temperature}
        yield measure() if saved is None else saved.get(measure, **shared, **about)


def qualities(
    model: Model,
    judge: LikelihoodJudge,
    options: FrontierOptions,
    *,
    name: str = "",
    saved: SavedPoints[TextMeasures] | None = None,
) -> Iterator[TextMeasures]:
    """Yield the measures of texts by each sampler at each number of network calls."""
    samplers = options.samplers or [one for one in COMPARED if one in model.samplers] or [model.own_sampler]
    settings = [
        SampleSettings(title=sampler, sampler=sampler, steps=steps)
        for sampler in samplers
        for steps in ((model.length,) if sampler in BY_TOKEN else options.calls)
    ]
    return measure_samples(model, judge, options, settings, name=name, saved=saved)

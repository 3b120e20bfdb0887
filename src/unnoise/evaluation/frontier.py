"""Comparison of samplers by the quality and variety of their texts, over numbers of network calls or over temperatures.

A sampler can lower the perplexity by generating less varied texts, for example at a low temperature. So a sampler is
represented by a curve of (perplexity, entropy), and is better if its curve lies lower at the same entropy (arXiv:2604.02718).

Results can be saved in a JSON file after each of them, so that an interrupted comparison can continue.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch

from unnoise.evaluation.generative import LikelihoodJudge, TextMeasures, measure_texts
from unnoise.files import check_writable, read_bytes, write_atomically
from unnoise.model.model import Model
from unnoise.sampler import Sampler
from unnoise.sampler.ancestral import Float32Gumbel

FORMAT = "unnoise-points-1"
LARGEST = 2**26  # largest size of the file in bytes
COMPARED = ("ancestral", "first-hitting", "confidence", "entropy-bounded", "remasking")
BY_TOKEN = ("first-hitting", "left-to-right")  # samplers that take one network call per token
CALLS = (16, 32, 64, 128, 256)
TEMPERATURES = (0.7, 0.8, 0.9, 1.0)
ARTEFACT = "ancestral, float32 Gumbel"


@dataclass(frozen=True, kw_only=True)
class FrontierOptions:
    """Options for measuring a model's samples.

    samplers: names of samplers. By default, those of `COMPARED` that the model supports (`qualities`), or the model's own.
    calls: largest numbers of network calls, for `qualities`.
    temperatures: temperatures, for `frontier`.
    steps: maximum number of network calls, for `frontier`.
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


# ---- saved results -------------------------------------------------------------------------------------------------------


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


# ---- comparisons ---------------------------------------------------------------------------------------------------------


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


def frontier(
    model: Model,
    judge: LikelihoodJudge,
    options: FrontierOptions,
    *,
    real: np.ndarray | None = None,
    name: str = "",
    saved: SavedPoints[TextMeasures] | None = None,
) -> Iterator[TextMeasures]:
    """Yield the measures of texts by each sampler at each temperature. See `measure_samples` for the arguments."""
    chosen: list[tuple[str, str | Sampler]] = [(one, one) for one in options.samplers or [model.own_sampler]]
    if options.float32_gumbel:
        if any(title != "ancestral" for title, _ in chosen):
            raise ValueError("float32 Gumbel noise is an artefact of ancestral samplers: name ancestral alone with it")
        chosen = [(ARTEFACT, Float32Gumbel(steps=options.steps))]
    for _, sampler in chosen:
        model.check_sampler(sampler)
    settings = [
        SampleSettings(title=title, sampler=sampler, steps=options.steps, temperature=temperature)
        for title, sampler in chosen
        for temperature in options.temperatures
    ]
    return measure_samples(model, judge, options, settings, real=real, name=name, saved=saved)


def best(points: Sequence[TextMeasures]) -> list[TextMeasures]:
    """Return the Pareto-optimal results: no other result has at most their perplexity and at least their entropy."""
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

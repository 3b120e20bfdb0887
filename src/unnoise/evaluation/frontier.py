"""Quality against variety: a judge's perplexity and the entropy of the texts, for each sampler over temperatures.

A sampler can lower the perplexity by generating less varied texts, for example at a low temperature. So a sampler is
represented by a curve of (perplexity, entropy), and is better if its curve lies lower at the same entropy (arXiv:2604.02718).
"""

from collections.abc import Iterator, Sequence

import numpy as np

from unnoise.evaluation.generative import (
    FrontierOptions,
    LikelihoodJudge,
    SampleSettings,
    SavedPoints,
    TextMeasures,
    measure_samples,
)
from unnoise.model.model import Model
from unnoise.sampler import Sampler
from unnoise.sampler.ancestral import Float32Gumbel

ARTEFACT = "ancestral, float32 Gumbel"


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

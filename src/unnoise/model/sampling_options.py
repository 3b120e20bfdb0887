"""Options for sampling: keywords of `Model.generate` and related methods, and options of the commands.

A model can recommend values for some of them. This module does not import torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from unnoise.registry import check_options, option

if TYPE_CHECKING:
    from unnoise.sampler import Sampler
else:
    Sampler = Any

RECOMMENDED = ("sampler", "steps", "temperature", "top_p")  # options that a model can recommend, in its config.json
STEPS = 128  # the default number of network calls
MAX_STEPS = 1_000_000
MAX_GUIDANCE_SCALE = 100


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """Options for sampling. A sampler object brings its own steps, temperature and top_p."""

    steps: int | None = option(None, min=1, max=MAX_STEPS)
    """Maximum number of network calls per sample (first-hitting, ar, ardm: one per token; bd3lm: some per block); default: what
    the model recommends, or 128."""
    sampler: str | Sampler | None = None
    """Name of a sampler from `unnoise ls`, with its fields, such as remasking:rate=0.05; default: what the model recommends, or
    the method's."""
    temperature: float | None = option(None)
    """Sampling temperature; 0 takes the most probable token; default: what the model recommends, or 1."""
    top_p: float | None = option(None)
    """Sample from the smallest set of tokens with at least this total probability; default: what the model recommends, or 1."""
    seed: int = option(0, min=0, max=2**63 - 1)
    """Seed of the random numbers; sample i depends on the seed and on i alone."""
    label: int | str | None = None
    """Class of the samples (a name or a number), for a model trained with labels."""
    guidance_scale: float = option(1.0, min=-MAX_GUIDANCE_SCALE, max=MAX_GUIDANCE_SCALE)
    """Guidance scale of the label; 1 is the model's own conditional distribution."""

    def __post_init__(self) -> None:
        check_options(self)
        if self.guidance_scale != 1 and self.label is None:
            raise ValueError("guidance_scale needs a label: give one")

    def applicable(self, recommended: Mapping[str, Any]) -> dict[str, Any]:
        """Return the recommended values that apply. A sampler object and fields set in a sampler's name take precedence."""
        if self.sampler is not None and not isinstance(self.sampler, str):
            return {}
        named = self.sampler or ""
        found = {key: value for key, value in recommended.items() if vars(self)[key] is None and f"{key}=" not in named}
        if self.temperature == 0:  # the most probable token is in every top-p set
            found.pop("top_p", None)
        return found

    def resolve(self, own: "Sampler") -> "Sampler":
        """Return the sampler for these options. own: the method's sampler."""
        from unnoise.sampler.sampler_base import SteppedSampler
        from unnoise.sampler_table import named_sampler

        if isinstance(self.sampler, str):
            sampler, complete = named_sampler(self.sampler), "steps=" in self.sampler
        else:
            sampler, complete = self.sampler or own, self.sampler is not None
        if self.steps is not None:
            sampler = sampler.with_nfe(self.steps)
        elif not complete and isinstance(sampler, SteppedSampler):
            sampler = sampler.with_nfe(STEPS)
        shaping = {"temperature": self.temperature, "top_p": self.top_p}
        return replace(sampler, **{name: value for name, value in shaping.items() if value is not None})

    def keeps_distribution(self, own: "Sampler") -> bool:
        """Return whether samples follow the network's own distribution, given enough steps."""
        sampler = self.resolve(own)
        return sampler.temperature == sampler.top_p == self.guidance_scale == 1 and sampler.keeps_distribution

"""How to write: the options of `generate`, `chain`, `infill` and `complete`."""

from dataclasses import dataclass, replace
from typing import TypedDict

from unnoise.keywords import check_keywords
from unnoise.sampler import Sampler
from unnoise.sampler.base import SteppedSampler
from unnoise.sampler_table import named_sampler

STEPS = 128  # network calls, where nothing else is said
STRONGEST_GUIDANCE = 100


class SamplingKeywords(TypedDict, total=False):
    """The same as keywords."""

    steps: int | None
    sampler: str | Sampler | None
    temperature: float | None
    top_p: float | None
    seed: int
    label: int | str | None
    guidance: float


@dataclass(frozen=True)
class SamplingOptions:
    """How to write.

    steps: network calls, at most; 128 by default, or what a sampler object has.
    sampler: a name ("remasking"), a name with fields ("remasking:rate=0.05"), or a sampler; the method's own by default.
    temperature: of the network's distribution, 1 by default, or what a sampler object has; 0 takes the likeliest token.
    top_p: keep the likeliest tokens that make up this much probability; likewise.
    seed: row i of the result depends on the seed and on i alone.
    label: the class of what is written, a number or a name, for a model trained with labels.
    guidance: how much the label is insisted on; 1 is the model's own conditional.
    """

    steps: int | None = None
    sampler: str | Sampler | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int = 0
    label: int | str | None = None
    guidance: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"a seed must lie between 0 and 2^63, found {self.seed}")
        if not abs(self.guidance) <= STRONGEST_GUIDANCE:
            raise ValueError(f"guidance must lie between -{STRONGEST_GUIDANCE} and {STRONGEST_GUIDANCE}, found {self.guidance}")
        if self.guidance != 1 and self.label is None:
            raise ValueError("guidance insists on a label: give one")

    @staticmethod
    def of(options: "SamplingKeywords") -> "SamplingOptions":
        """From keywords, or ValueError with the nearest right one."""
        check_keywords(SamplingOptions, options, "writing")
        return SamplingOptions(**options)

    def resolve(self, own: Sampler) -> Sampler:
        """The sampler that these options mean; `own` is the method's."""
        given = own if self.sampler is None else self.sampler
        if isinstance(given, str):
            sampler = named_sampler(given)
            complete = "steps=" in given
        else:
            sampler, complete = given, self.sampler is not None
        if self.steps is not None:
            sampler = sampler.with_nfe(self.steps)
        elif not complete and isinstance(sampler, SteppedSampler):
            sampler = sampler.with_nfe(STEPS)
        shaping = {"temperature": self.temperature, "top_p": self.top_p}
        return replace(sampler, **{name: value for name, value in shaping.items() if value is not None})

    def keeps_distribution(self, own: Sampler) -> bool:
        """Whether samples follow the network's own distribution, given enough steps."""
        sampler = self.resolve(own)
        return sampler.temperature == sampler.top_p == self.guidance == 1 and sampler.keeps_distribution

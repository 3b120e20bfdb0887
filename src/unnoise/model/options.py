"""How to write: the options of `generate`, `chain`, `infill` and `complete`, and those that a model recommends."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypedDict, cast

from unnoise.keywords import check_keywords
from unnoise.sampler import Sampler
from unnoise.sampler.base import MOST_STEPS, SteppedSampler
from unnoise.sampler_table import named_sampler

if TYPE_CHECKING:
    from unnoise.model.model import Model

RECOMMENDED = ("sampler", "steps", "temperature", "top_p")  # what a model may recommend, under `sampling` in config.json
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

    steps: network calls, at most; by default what the model recommends, or 128, or what a sampler object has.
    sampler: a name ("remasking"), a name with fields ("remasking:rate=0.05"), or a sampler; by default the one that the model
    recommends, or the method's own.
    temperature: of the network's distribution; 0 takes the likeliest token; by default what the model recommends, or 1, or what
    a sampler object has.
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

    def with_defaults(self, recommended: SamplingKeywords) -> "SamplingOptions":
        """These options, with a model's recommended ones where none is given, one by one.

        A sampler object is given with all that it has, and so is what is set in a sampler's name.
        """
        return replace(self, **self.taken(recommended))

    def taken(self, recommended: SamplingKeywords) -> dict[str, Any]:
        """Those of a model's recommended options that take effect beside these."""
        if self.sampler is not None and not isinstance(self.sampler, str):
            return {}
        named = self.sampler or ""
        taken = {key: value for key, value in recommended.items() if vars(self)[key] is None and f"{key}=" not in named}
        if self.temperature == 0:  # the likeliest token is among those of any top-p
            taken.pop("top_p", None)
        return taken

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


def checked_sampling(model: "Model", found: Any) -> SamplingKeywords:
    """The sampling options that a model recommends, or ValueError: some of sampler (a name, perhaps with fields), steps,
    temperature and top_p, with which it can write."""
    if not isinstance(found, dict):
        raise ValueError(f"they must be a table of some of {', '.join(RECOMMENDED)}, found {found!r}")
    for name, value in found.items():
        if name not in RECOMMENDED:
            raise ValueError(f"there is no {name!r} among them; there are {', '.join(RECOMMENDED)}")
        kind = {"sampler": str, "steps": int}.get(name, int | float)
        if isinstance(value, bool) or not isinstance(value, kind):
            words = {"sampler": "the name of a sampler", "steps": "a whole number"}.get(name, "a number")
            raise ValueError(f"{name} must be {words}, found {value!r}")
    if not 1 <= found.get("steps", 1) <= MOST_STEPS:
        raise ValueError(f"steps must be a whole number ≥ 1 (and ≤ {MOST_STEPS:,}), found {found['steps']}")
    sampling = cast(SamplingKeywords, {name: found[name] for name in RECOMMENDED if name in found})
    model.check_sampler(SamplingOptions.of(sampling).resolve(model.method.sampler))
    return sampling

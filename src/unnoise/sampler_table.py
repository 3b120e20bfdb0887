"""The table of samplers by name; fields are set in the name: "remasking:rate=0.05,grid=cosine".

A new sampler is a frozen dataclass derived from a base of `unnoise.sampler.sampler_base`, and a line in `_SAMPLERS`.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from unnoise.families.autoregressive import LeftToRight
from unnoise.families.bayesian_flow import FlowSampler
from unnoise.families.block import BlockSampler
from unnoise.families.ddpm_objective import DdpmSampler
from unnoise.families.gaussian import GaussianSampler
from unnoise.families.insertion_sampler import InsertionSampler
from unnoise.registry import check_settings, did_you_mean, find, parse_settings, register_builtin, registered
from unnoise.sampler import (
    Ancestral,
    Confidence,
    EntropyBounded,
    EulerLeaping,
    FirstHitting,
    Metropolis,
    PredictorCorrector,
    Remasking,
    Sampler,
    TweedieLeaping,
)
from unnoise.sampler.ancestral import Psi

_SAMPLERS = {
    "ancestral": Ancestral,
    "first-hitting": FirstHitting,
    "confidence": Confidence,
    "entropy-bounded": EntropyBounded,
    "remasking": Remasking,
    "psi": Psi,
    "predictor-corrector": PredictorCorrector,
    "tweedie": TweedieLeaping,
    "euler": EulerLeaping,
    "metropolis": Metropolis,
    "left-to-right": LeftToRight,
    "gaussian": GaussianSampler,
    "ddpm": DdpmSampler,
    "flow": FlowSampler,
    "insertion": InsertionSampler,
    "block": BlockSampler,
}
register_builtin("sampler", _SAMPLERS)

ALIASES = {  # names of samplers with fields set
    "margin": "confidence:by=margin",
    "entropy": "confidence:by=entropy",
    "metropolis": "metropolis:before=tweedie",  # so that there is a sequence to correct
    "ddim": "gaussian:deterministic=true",
    "insertion-confidence": "insertion:order=confidence",
}
COMMON = ("steps", "temperature", "top_p")  # options of the commands, not fields in the name


@dataclass(frozen=True)
class SamplerField:
    """A configurable field of a sampler."""

    name: str
    kind: Literal["number", "whole", "choice", "flag", "sampler"]
    default: Any
    choices: tuple[str, ...] = ()
    optional: bool = False
    help: str = ""

    def parse(self, text: str) -> Any:
        """Parse a value, or raise ValueError."""
        if self.optional and text.lower() in ("none", ""):
            return None
        try:
            match self.kind:
                case "number":
                    return float(text)
                case "whole":
                    return int(text)
                case "flag":
                    return {"true": True, "false": False}[text.lower()]
                case "sampler":
                    return named_sampler(text)
                case "choice":
                    return text  # checked by the sampler
        except (ValueError, KeyError) as error:
            wanted = {"number": "a number", "whole": "a whole number", "flag": "true or false", "sampler": "a sampler"}
            raise ValueError(f"{self.name} must be {wanted[self.kind]}, found {text!r}") from error


def sampler_names() -> list[str]:
    """Return all sampler names, including aliases."""
    return list(dict.fromkeys([*registered("sampler"), *ALIASES]))


def named_sampler(text: str) -> Sampler:
    """Return a sampler by name, with optional fields, "name:field=value,field=value", or raise ValueError."""
    name, _, settings = text.partition(":")
    base, _, preset = ALIASES.get(name, name).partition(":")
    if base not in registered("sampler"):
        names = sampler_names()
        raise ValueError(f"unknown sampler {name!r}: {did_you_mean(name, names)}use one of {', '.join(names)}")
    cls = find("sampler", base)
    return cls(**(_settings(cls, base, preset) | _settings(cls, name, settings)))


def _settings(cls: type[Sampler], name: str, text: str) -> dict[str, Any]:
    known = {field.name: field for field in sampler_fields(cls, common=True)}
    values = parse_settings(name, text, "sampler")
    check_settings(name, values, list(known), "sampler")
    return {field: known[field].parse(str(value)) for field, value in values.items()}


def sampler_name(sampler: Sampler) -> str:
    """Return the name or alias of a sampler, or its class name if it is not registered."""
    for alias, meaning in ALIASES.items():
        if alias not in registered("sampler") and _same(sampler, named_sampler(meaning)):
            return alias
    return next((name for name, cls in registered("sampler").items() if cls is type(sampler)), type(sampler).__name__)


def _same(one: Sampler, other: Sampler) -> bool:
    """Return whether two samplers agree in all but the common options."""
    own = [field.name for field in dataclasses.fields(one) if field.name not in COMMON]
    return type(one) is type(other) and all(vars(one)[name] == vars(other)[name] for name in own)


def sampler_fields(cls: type[Sampler], common: bool = False) -> list[SamplerField]:
    """Return the configurable fields of a sampler, with help texts from the docstrings of the class and its bases.

    common: include the options of all samplers (steps, temperature, top_p).
    """
    hints, helps = get_type_hints(cls), field_help(cls)
    return [
        _described(field.name, hints[field.name], field.default, helps)
        for field in dataclasses.fields(cls)
        if common or field.name not in COMMON
    ]


def _described(name: str, hint: Any, default: Any, helps: Mapping[str, str]) -> SamplerField:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    optional = NoneType in options
    plain = next(option for option in options if option is not NoneType)
    words = helps.get(name, "")
    if get_origin(plain) is Literal:
        return SamplerField(name, "choice", default, get_args(plain), optional=optional, help=words)
    if isinstance(plain, type) and issubclass(plain, Sampler):
        return SamplerField(name, "sampler", default, optional=optional, help=words)
    kinds: dict[Any, Any] = {bool: "flag", int: "whole", float: "number", str: "choice"}
    return SamplerField(name, kinds.get(plain, "choice"), default, optional=optional, help=words)


def field_help(cls: type) -> dict[str, str]:
    """Return the help text of each field: the paragraphs of the docstrings, bases included, that begin with `name: `."""
    found: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        lines = [line.strip() for line in (vars(base).get("__doc__") or "").splitlines()]
        name = None
        for line in lines:
            begins = re.match(r"(\w+): (.+)", line)
            if begins and begins[1] in {field.name for field in dataclasses.fields(cls)}:
                name = begins[1]
                found[name] = begins[2]
            elif not line:
                name = None
            elif name is not None:
                found[name] += f" {line}"
    return found

"""Samplers by name with their fields: parsed, described, and served to the models that they fit."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import unnoise
from unnoise.denoiser import SamplingDenoiser
from unnoise.rng import Generator
from unnoise.sampler import Confidence, Metropolis, Remasking, TweedieLeaping
from unnoise.sampler.sampler_base import Frame, SteppedSampler
from unnoise.sampler.unmasking import MaskedSampler
from unnoise.sampler_table import field_help, named_sampler, sampler_fields, sampler_name, sampler_names


def test_a_name_with_fields() -> None:
    assert named_sampler("remasking:rate=0.05,grid=cosine,steps=7") == Remasking(7, rate=0.05, grid="cosine")
    assert named_sampler("margin") == Confidence(by="margin") and sampler_name(Confidence(by="margin")) == "margin"
    assert named_sampler("confidence:by=entropy") == named_sampler("entropy")
    made = named_sampler("metropolis:level=0.1")
    assert isinstance(made, Metropolis) and made.level == 0.1 and isinstance(made.before, TweedieLeaping)
    assert named_sampler("entropy-bounded:budget=none") == named_sampler("entropy-bounded")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("remaskin", "unknown sampler 'remaskin': did you mean 'remasking'"),
        ("remasking:rate", "set as remasking:field=value, found 'rate'"),
        ("remasking:rat=1", "has no field 'rat'; did you mean 'rate'"),
        ("remasking:rate=much", "rate must be a number, found 'much'"),
        ("ancestral:steps=2.5", "steps must be a whole number"),
        ("gaussian:deterministic=perhaps", "deterministic must be true or false"),
        ("ancestral:grid=cubic", 'grid must be "uniform" or "cosine"'),
        ("metropolis:before=nothing", "before must be a sampler, found 'nothing'"),
    ],
)
def test_mistakes(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        named_sampler(name)


@pytest.mark.parametrize("name", sampler_names())
def test_every_field_has_help(name: str) -> None:
    sampler = type(named_sampler(name))
    assert all(field.help for field in sampler_fields(sampler, common=True)), sampler
    assert "steps" not in field_help(sampler) or "call" in field_help(sampler)["steps"]


def test_a_sampler_says_whom_it_serves() -> None:
    served = {
        "ar": {"left-to-right"},
        "gaussian": {"gaussian", "ddim"},
        "ddpm": {"ddpm"},
        "bfn": {"flow"},
        "flexmdm": {"insertion", "insertion-confidence"},
        "sedd-absorb": {"tweedie", "euler", "predictor-corrector", "metropolis"},
    }
    for method, names in served.items():
        assert set(unnoise.Model.build(method, length=4, size="nano").samplers) == names
    assert {"remasking", "first-hitting", "psi"} <= set(unnoise.Model.build("mdlm", length=4, size="nano").samplers)
    genmd4 = set(unnoise.Model.build("genmd4", length=4, size="nano").samplers)
    assert "ancestral" in genmd4 and "first-hitting" not in genmd4


def test_a_sampler_keeps_the_distribution_only_if_it_says_so_itself() -> None:
    """Claim nothing for the tutorial's sampler, which unmasks several positions at once in a fixed order."""
    kept = {name for name in sampler_names() if named_sampler(name).keeps_distribution}
    assert kept >= {"ancestral", "first-hitting", "tweedie", "euler", "predictor-corrector", "left-to-right", "block"}
    assert kept >= {"gaussian", "ddpm", "flow", "insertion"}
    others = ("confidence", "margin", "entropy", "entropy-bounded", "remasking", "psi", "metropolis", "insertion-confidence")
    assert kept.isdisjoint(others)
    assert all(named_sampler(name).distribution.startswith("keeps the model's distribution") for name in kept)

    class Fixed(MaskedSampler, SteppedSampler):
        def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
            yield Frame(0.0, x, torch.zeros(x.shape))

    assert not Fixed().keeps_distribution and "is not known to" in Fixed().distribution

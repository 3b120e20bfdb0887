"""Tokens that no encoded text holds: their numbers, the renormalized laws by enumeration, and that no sampler draws them."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import unnoise
from toy import texts
from unnoise import Model
from unnoise.data import Bpe, Characters, Text8
from unnoise.data.codec import LETTERS
from unnoise.data.tokenizer import Text8Bpe
from unnoise.denoiser import predict, predict_clean
from unnoise.families.autoregressive import NextToken
from unnoise.prediction import MeanPrediction
from unnoise.process import Process
from unnoise.process.state import ProcessBase

UNUSED = (1, 4)
USED = (0, 2, 3)
PUSH = 12.0  # on the logits of unused tokens: without an exclusion nearly every token drawn is one of them
LENGTH = 3


class Unused(Characters):
    """Five characters, of which two never occur."""

    unused: Sequence[int] = UNUSED


def pushed(method: str, length: int = LENGTH) -> Model:
    """Return a model that gives nearly all probability to unused tokens."""
    model = Model.build(method, Unused("abcde"), length=length, width=16, depth=1, heads=2)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))

    def push(network: torch.nn.Module, arguments: Any, output: Any) -> Any:
        logits = output[0] if isinstance(output, tuple) else output
        more = torch.zeros(logits.shape[-1]).index_fill(0, torch.tensor(UNUSED), PUSH)
        return (logits + more, *output[1:]) if isinstance(output, tuple) else logits + more

    model.network.register_forward_hook(push)
    return model


def without_exclusion(model: Model) -> ProcessBase:
    """Return the model's process after switching the exclusion of unused tokens off."""
    model.process.excluded = None
    return model.process


def test_text8_byte_pairs_use_the_tokens_of_its_27_symbols() -> None:
    for codec in (Text8Bpe.build(["the cat sat on the mat "] * 9, detail="280"), Text8Bpe.build(["a cat"], True, "258")):
        foreign = [i for i in range(codec.vocab) if i != codec.eos and set(codec.decode([i])) - set(LETTERS)]
        assert list(codec.unused) == foreign and len(foreign) == 256 - 27
    assert not Bpe.train(["the cat"], 260).unused and not Text8().unused
    assert len(unnoise.load("wiki").codec.unused) == 229


@pytest.mark.parametrize("method", unnoise.methods())
def test_no_sampler_draws_an_unused_token(method: str) -> None:
    model = pushed(method)
    for sampler in model.samplers:
        for shape in (1.0, 0.8) if model.method.parameterization.takes_guidance else (1.0,):
            drawn = "".join(model.generate(40, steps=6, sampler=sampler, seed=3, temperature=shape, top_p=shape))
            assert drawn and set(drawn) <= set("acd"), sampler
    if not model.process.variable_length:
        filled = "".join(model.infill("a[MASK][MASK]", 30, steps=6)) + "".join(model.complete("c", "", n=30, steps=6))
        assert set(filled) <= set("acd")
    without_exclusion(model)
    if method not in ("bfn", "gaussian"):  # their output is weighed with what the noise says
        assert set("".join(model.generate(40, steps=6, seed=3))) & set("be")


@pytest.mark.parametrize("method", ["mdlm", "udlm", "d3pm-uniform", "gidd", "bd3lm"])
def test_a_mean_is_renormalised_over_the_used_tokens(method: str) -> None:
    """μ_i / Σ_{used} μ_j exactly, whatever stands at the other positions and at whatever time."""
    model = pushed(method)
    process = model.process
    assert isinstance(process, Process)
    x_t = texts(process.states, LENGTH)
    for t in (0.2, 1.0):
        times = torch.full((len(x_t),), t, dtype=torch.float64)
        with torch.no_grad():
            found = model.denoiser(x_t, times.float(), None)
            process.excluded, kept = None, process.excluded
            plain = model.denoiser(x_t, times.float(), None)
            process.excluded = kept
        assert isinstance(found, MeanPrediction) and isinstance(plain, MeanPrediction)
        used = plain.log_probs.double().exp()[..., USED]
        wanted = used / used.sum(-1, keepdim=True)
        assert torch.allclose(found.log_probs.double().exp()[..., USED], wanted, atol=1e-6)
        assert not found.log_probs.exp()[..., UNUSED].any()


@torch.no_grad()
def left_to_right(model: Model, x: Tensor) -> Tensor:
    """−log p of every text, token by token from one-token predictions: [N, L] → [N]."""
    assert isinstance(model.denoiser, NextToken)
    start = torch.full_like(x[:, :1], model.process.vocab)
    log_p, _ = model.denoiser.next_token(torch.cat([start, x[:, :-1]], 1), None)
    return -log_p.double().gather(-1, x[..., None])[..., 0].sum(-1)


def used_texts() -> Tensor:
    return torch.tensor(list(itertools.product(USED, repeat=LENGTH)))


def test_the_law_of_a_left_to_right_model_sums_to_one_over_texts_of_used_tokens() -> None:
    """And what `score` says of each text is −log of that law."""
    model = pushed("ar")
    x = used_texts()
    nats = left_to_right(model, x)
    assert float((-nats).exp().sum()) == pytest.approx(1, abs=1e-6)
    for i in (0, 7, 20):
        assert model.score(model.codec.decode(x[i].tolist())).nats == pytest.approx(float(nats[i]), rel=1e-5)
    without_exclusion(model)
    assert float((-left_to_right(model, x)).exp().sum()) < 1e-3


@torch.no_grad()
def any_order(model: Model, x: Tensor) -> tuple[Tensor, Tensor]:
    """p of each text, the mean over the L! orders of revealing it; and the any-order bound on −log p: [N], [N]."""
    process = model.process
    assert isinstance(process, Process)
    nats = []
    for order in itertools.permutations(range(LENGTH)):
        x_t, total = torch.full_like(x, process.vocab), torch.zeros(len(x), dtype=torch.float64)
        for place in order:
            where = torch.zeros_like(x, dtype=torch.bool)
            where[:, place] = True
            log_p = predict_clean(model.denoiser, process, x_t, torch.full((len(x),), 0.5), where)
            total -= log_p.double().gather(-1, x[:, place, None])[:, 0]
            x_t = torch.where(where, x, x_t)
        nats.append(total)
    every = torch.stack(nats)
    return (-every).exp().mean(0), every.mean(0)


def test_the_law_of_a_masked_model_is_renormalised_and_its_bound_bounds_that_law() -> None:
    """Σ p = 1 over texts of used tokens; `score` has the expected bound of these conditionals; first-hitting draws p."""
    model = pushed("mdlm")
    x = used_texts()
    p, bound = any_order(model, x)
    assert float(p.sum()) == pytest.approx(1, abs=1e-6) and (bound >= -p.log() - 1e-9).all()
    text = model.codec.decode(x[5].tolist())
    score = model.score(text, samples=20_000, error=0.0)
    residual = 1e-3 * LENGTH * math.log(len(USED))  # α(1) = 0.001: what the mask does not hide costs a little more
    assert abs(score.nats - float(bound[5])) < 5 * score.stderr * LENGTH * math.log(2) + residual
    drawn = model.generate(6000, sampler="first-hitting", seed=0)
    counts = torch.tensor([drawn.count(model.codec.decode(row)) for row in x.tolist()], dtype=torch.float64)
    assert int(counts.sum()) == 6000
    error = (counts / 6000 - p) / (p / 6000).sqrt()
    assert float(error.square().sum()) < 26 + 5 * math.sqrt(52)  # χ² with 26 degrees of freedom


@pytest.mark.parametrize("method", ["sedd-absorb", "sedd-uniform", "csm"])
def test_a_score_leads_to_used_tokens_alone(method: str) -> None:
    """p(x_0 | x_t) has no unused token; on the way, noise may show one where it is uniform, a revealed token is none."""
    model = pushed(method)
    process = model.process
    assert isinstance(process, Process)
    x_t = texts(process.states, LENGTH)
    where, t = torch.ones_like(x_t, dtype=torch.bool), torch.full((len(x_t),), 0.7, dtype=torch.float64)
    with torch.no_grad():
        prediction = predict(model.denoiser, process, x_t, t, where)
    flat, at = x_t.flatten(), t[:, None].expand(x_t.shape).flatten()
    live = (process.active(flat)) & ~torch.isin(flat, torch.tensor(UNUSED))
    clean = prediction.clean(process, flat, at).exp()[live]
    assert torch.allclose(clean.sum(-1), torch.ones(len(clean)), atol=1e-5) and float(clean[:, UNUSED].max()) < 1e-29
    earlier = prediction.reverse(process, flat, at / 2, at).exp()[live]
    assert (float(earlier[:, UNUSED].max()) < 1e-29) == (method == "sedd-absorb")


@pytest.mark.parametrize("name", ["wiki", "stories", "molecules"])
def test_bundled_models_write_only_what_their_codec_can_encode(name: str) -> None:
    """Each text is read back as it is, at a temperature at which the rarest tokens are drawn; filled-in text too."""
    model = unnoise.load(name)
    drawn = model.generate(8, length=min(model.length, 48), steps=12, temperature=3.0, top_p=1.0, seed=0)
    drawn += model.infill("cc[MASK][MASK]c" if name == "molecules" else "the [MASK][MASK] of", n=4, steps=4, temperature=3.0)
    for text in drawn:
        assert name == "stories" or model.codec.decode(model.codec.encode(text)) == text
    unused = set(model.codec.unused)
    states = [step.ids for step in model.chain(steps=8, temperature=3.0, top_p=1.0, seed=1)]
    assert not unused & {token for ids in states for token in ids}
    assert bool(unused) == (name == "wiki")

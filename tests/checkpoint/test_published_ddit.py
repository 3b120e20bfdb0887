"""Published diffusion models with the network ddit: what their own code gives on fixed inputs, through our parts.

The fixtures are tiny random checkpoints with the outputs of the models' own code.
"""

import hashlib
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

import unnoise
from unnoise.denoiser import predict
from unnoise.families.insertion import Partial
from unnoise.model.model import Model
from unnoise.network.attention import KVCache, block_visibility
from unnoise.objective import Elbo
from unnoise.prediction import MeanPrediction
from unnoise.process.process_base import Process, without_own
from unnoise.process.state import PAD

PARITY = Path(os.environ.get("UNNOISE_PARITY", Path(__file__).parents[1] / "fixtures" / "parity"))
MASKED, UNIFORM = ("mdlm", "mdlm-lightning"), ("duo", "udlm", "udlm-cfg")


def opened(name: str) -> tuple[Model, dict[str, Tensor]]:
    return unnoise.load(PARITY / name), load_file(PARITY / name / "expected.safetensors")


def close(found: Tensor, expected: Tensor, atol: float = 1e-5) -> bool:
    return torch.allclose(found.double(), expected.double(), rtol=1e-6, atol=atol)


def same_nats(found: Tensor, expected: Tensor) -> bool:
    """Within 1e-4 of each, relatively, and of nothing where there is nothing."""
    return torch.allclose(found.double(), expected.double(), rtol=1e-4, atol=1e-5)


@torch.no_grad()
def raw(model: Model, expected: dict[str, Tensor], **options: object) -> Tensor:
    return model.network(expected["input_ids"], expected["t"], **options)


@torch.no_grad()
def nats_of(model: Model, expected: dict[str, Tensor], denoiser: object = None) -> Tensor:
    """Compute the integrand of the bound at each position with our process: [B, L]."""
    process, x, x_t, t = model.process, expected["x0"], expected["input_ids"], expected["t"].double()
    assert isinstance(process, Process)
    where = process.active(x_t)
    at = t[:, None].expand(x.shape)[where]
    prediction = predict(denoiser or model.denoiser, process, x_t, t, where)  # pyright: ignore[reportArgumentType]
    nats = process.integrand(prediction, x[where], x_t[where], at)
    return torch.zeros(x.shape, dtype=nats.dtype).masked_scatter(where, nats)


@torch.no_grad()
def bound_of(model: Model, expected: dict[str, Tensor]) -> Tensor:
    """Compute the sums over positions with our objective: [B]."""
    assert isinstance(model.bound, Elbo)
    return model.bound.at(model.denoiser, expected["x0"], expected["input_ids"], expected["t"].double())


@pytest.mark.skipif("UNNOISE_PARITY" in os.environ, reason="other fixtures are compared")
def test_the_fixtures_are_as_their_own_code_wrote_them() -> None:
    listed = dict(line.split()[::-1] for line in (PARITY / "MANIFEST.sha256").read_text().splitlines())
    for file, checksum in listed.items():
        assert hashlib.sha256((PARITY / file).read_bytes()).hexdigest() == checksum, file
    assert len(listed) == sum(1 for _ in PARITY.glob("*/*"))


# ---- masked: MDLM --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MASKED)
def test_mdlm(name: str) -> None:
    model, expected = opened(name)
    vocab, x_t = model.codec.vocab, expected["input_ids"]
    assert model.method.name == "mdlm" and expected["logits"].shape[-1] == vocab + 1
    assert close(raw(model, expected), expected["logits"][..., :vocab])
    masked = x_t == vocab
    with torch.no_grad():
        log_probs = predict(model.denoiser, model.process, x_t, expected["t"], masked).values  # pyright: ignore
    assert close(log_probs, expected["log_probs"][masked][:, :vocab])
    assert same_nats(nats_of(model, expected), expected["nll"])
    assert same_nats(bound_of(model, expected), expected["nll"].sum(1))


def test_averaged_weights_are_those_that_are_read() -> None:
    model, expected = opened("mdlm-lightning")
    assert model.notes["weights"] == "ema"
    assert not close(raw(model, expected), expected["logits_raw_weights"][..., : model.codec.vocab], 1e-2)
    by_file = unnoise.load(PARITY / "mdlm-lightning" / "last.ckpt")
    assert torch.equal(raw(by_file, expected), raw(model, expected))


def test_constants_follow_the_weights() -> None:
    model, expected = opened("mdlm")
    before = raw(model, expected)
    assert torch.equal(before, raw(model, expected))
    for weight in (model.network.blocks[0].adaln.weight, model.network.time_embed[0].bias, model.network.norm.weight):  # pyright: ignore
        with torch.no_grad():
            weight.add_(0.1)  # pyright: ignore
        after = raw(model, expected)
        assert not torch.allclose(before, after, atol=1e-4)
        with torch.enable_grad():
            assert torch.allclose(model.network(expected["input_ids"]), after, atol=1e-6)
        before = after


# ---- a score: SEDD -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sedd-absorb", "sedd-uniform"])
def test_sedd(name: str) -> None:
    model, expected = opened(name)
    process, x_t, t = model.process, expected["input_ids"], expected["t"]
    assert isinstance(process, Process) and model.method.name.partition(":")[0] == name
    assert close(raw(model, expected), expected["logits"][..., : process.vocab])
    assert close(process.schedule.sigma(t), expected["sigma"], 1e-6)
    assert torch.allclose(process.schedule.rate(t), expected["dsigma"], rtol=1e-5)
    where = process.active(x_t)
    with torch.no_grad():
        log_s = predict(model.denoiser, process, x_t, t, where).values
    assert close(without_own(log_s, x_t[where]), expected["log_score"][where])
    assert same_nats(nats_of(model, expected), expected["nll"])
    assert same_nats(bound_of(model, expected), expected["loss_sum"])


# ---- uniform: Duo, UDLM --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", UNIFORM)
@torch.no_grad()
def test_uniform(name: str) -> None:
    model, expected = opened(name)
    process, x_t, t = model.process, expected["input_ids"], expected["t"]
    assert isinstance(process, Process) and model.method.name.partition(":")[0] == "udlm"
    labels = {"": expected.get("cond")} | ({"_no_cond": expected["no_cond"]} if "cond" in expected else {})
    for kind, label in labels.items():
        options = {} if label is None else {"label": label}
        assert close(raw(model, expected, **options), expected["logits" + kind])
        denoiser = model.denoiser if label is None else model.denoiser.condition(label)
        prediction = predict(denoiser, process, x_t, t, torch.ones_like(x_t, dtype=torch.bool))
        assert isinstance(prediction, MeanPrediction)
        log_probs = prediction.log_probs.view(*x_t.shape, -1)
        assert close(log_probs, expected["log_probs" + kind])
        at = t.double()[:, None].expand(x_t.shape)
        posterior = process.mean_reverse(log_probs, x_t, at / 2, at).exp()
        assert torch.allclose(posterior.double(), expected["posterior_half_t" + kind].double(), rtol=1e-4, atol=1e-7)
        assert same_nats(nats_of(model, expected, denoiser), expected["nll" + kind])


def test_without_a_label_it_reads_the_row_of_no_label() -> None:
    model, expected = opened("udlm-cfg")
    assert model.labels == tuple(str(i) for i in range(int(expected["no_cond"][0])))
    assert close(raw(model, expected), expected["logits_no_cond"])
    assert len(model.generate(2, length=4, steps=2, label=0, guidance_scale=1.5)) == 2


# ---- masks and uniform noise: GIDD -----------------------------------------------------------------------------------------


@torch.no_grad()
def test_gidd() -> None:
    model, expected = opened("gidd")
    process, x, x_t, t = model.process, expected["x0"], expected["input_ids"], expected["t"]
    assert isinstance(process, Process)
    mask = int(expected["mask_id"])
    assert process.vocab == mask
    assert close(raw(model, expected), expected["logits"][..., :mask])
    log_probs = predict(model.denoiser, process, x_t, t, torch.ones_like(x_t, dtype=torch.bool)).values.view(*x_t.shape, -1)
    assert close(log_probs, expected["log_probs"][..., :mask])
    at = t.double()[:, None].expand(x.shape)
    assert close(process.schedule.alpha(t), expected["alpha"], 1e-6)
    assert close(process.marginal(x, at), expected["xt_probs_given_x0"], 1e-6)
    assert same_nats(nats_of(model, expected), expected["nll"])
    assert same_nats(bound_of(model, expected), expected["nll"].sum(1))


# ---- blocks: BD3-LM --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_bd3lm() -> None:
    model, expected = opened("bd3lm")
    vocab, x, x_t, t = model.codec.vocab, expected["x0"], expected["input_ids"], expected["t"]
    size, length = model.process.block, x.shape[1]  # pyright: ignore
    everywhere = torch.ones_like(x, dtype=torch.bool)
    twice = model.network(torch.cat([x_t, x], 1), torch.cat([t, t], 1), block=size)
    assert close(twice[:, :length], expected["logits"][..., :vocab])
    mask, positions = block_visibility(length, size, x.device)
    again = model.network(torch.cat([x_t, x], 1), None, attention_mask=mask, positions=positions)
    assert close(again, twice)
    masked = x_t == vocab
    predicted = model.denoiser.blocks(x_t, x, t, everywhere, size).log_probs.view(*x.shape, -1)  # pyright: ignore
    assert close(predicted[masked], expected["log_probs"][masked][:, :vocab])
    weight = torch.where(masked, 1 / t.double(), 0)
    sums = model.bound.at(model.denoiser, x, masked, t, weight)  # pyright: ignore
    assert same_nats(sums, expected["nll"].sum(1))
    per_position = torch.where(masked, weight * -predicted.gather(-1, x[..., None])[..., 0], 0)
    assert same_nats(per_position, expected["nll"])


@pytest.mark.parametrize("which", ["sample", "sample_short"])
@torch.no_grad()
def test_the_cache_of_bd3lm(which: str) -> None:
    model, expected = opened("bd3lm")
    vocab, size = model.codec.vocab, model.process.block  # pyright: ignore
    ids = expected[f"{which}_input_ids"]
    length = ids.shape[1]
    blocks = torch.arange(length) // size
    sees = blocks[:, None] >= blocks[None, :]
    whole = model.network(ids, None, attention_mask=sees)
    assert close(whole, expected[f"{which}_logits"][..., :vocab])
    cache = KVCache()
    for start in range(0, length - size, size):
        model.denoiser.read(ids[:, start : start + size], cache)  # pyright: ignore
    last = ids[:, length - size :]
    cache.frozen = True
    cached = model.network(last, None, cache=cache)
    assert close(cached, whole[:, -size:])
    if which == "sample":
        assert close(cached, expected["sample_kv_logits"][..., :vocab])
    assert torch.allclose(
        model.denoiser.within(cache)(last, torch.ones(len(ids)), None).log_probs,  # pyright: ignore
        torch.log_softmax(whole[:, -size:], -1),
        atol=1e-5,
    )


# ---- variable length: Flex-MDM ---------------------------------------------------------------------------------------------


@torch.no_grad()
def test_flexmdm() -> None:
    model, expected = opened("flexmdm")
    process, theirs = model.process, expected["input_ids"]
    vocab, length = model.codec.vocab, expected["x0"].shape[1]
    padding, mask = vocab, vocab + 1
    t = 1 - expected["t"]  # theirs is 1 at data
    present = torch.arange(length + 1) <= (theirs != padding).sum(1, keepdim=True)
    logits, number = model.network(torch.nn.functional.pad(theirs, (0, 1), value=padding), t, present=present, gaps=True)
    assert close(logits[:, :length], expected["logits"])
    gaps = length * torch.nn.functional.softplus(number)
    assert close(gaps, expected["expected_gaps"], 1e-4)
    x = torch.where(theirs == mask, process.mask, torch.where(theirs == padding, PAD, theirs))  # pyright: ignore
    prediction = model.denoiser(x, t)
    there = x != PAD
    assert close(prediction.log_probs[there], expected["log_probs"][there][:, :vocab])  # pyright: ignore
    assert close(prediction.gaps, expected["expected_gaps"], 1e-4)  # pyright: ignore
    # the bound: their divergence has n log n more for a gap of n, which no network changes
    x0 = torch.where(expected["x0"] == padding, PAD, expected["x0"])
    target = torch.where(there, x0.gather(1, expected["st"]), PAD)
    nats = model.bound.at(model.denoiser, Partial(x, target, expected["gaps"]), t.double())  # pyright: ignore
    counts = expected["gaps"].double()
    constant = (torch.xlogy(counts, counts) * expected["gaps_mask"]).sum(1) / t.double()
    assert same_nats(nats + constant, (expected["nll"].sum(1) + expected["nll_insert"].sum(1)))


# ---- every verb ------------------------------------------------------------------------------------------------------------

EVERY = (*MASKED, *UNIFORM, "sedd-absorb", "sedd-uniform", "bd3lm", "gidd", "flexmdm")


@pytest.mark.parametrize("name", EVERY)
def test_every_verb_works(name: str, tmp_path: Path) -> None:
    model, _ = opened(name)
    variable = model.process.variable_length
    written = model.generate(2, length=8, steps=8, seed=1)
    assert all(len(text.split()) <= 8 if variable else len(text.split()) == 8 for text in written)
    assert model.infill("3 1 [MASK] [MASK] 4", steps=4)[0].startswith("3 1 ")
    completed = model.complete("3 1", "4 5", length=8, steps=4)[0].split()
    assert completed[:2] == ["3", "1"] and completed[-2:] == ["4", "5"]
    score = model.score("3 1 4 1 5 9 2 6", samples=2)
    assert score.characters == 8 and score.nats > 0
    model.save(tmp_path / "ours")
    again = unnoise.load(tmp_path / "ours")
    assert again.generate(2, length=8, steps=8, seed=1) == written
    (tmp_path / "texts.txt").write_text(" ".join(str(i % 7) for i in range(2000)))
    texts = model.texts(unnoise.corpus(str(tmp_path / "texts.txt")), "test")
    assert model.bits_per_char(texts, 2, 2).bits > 0

"""Published diffusion models of the Llama type, and MD4: the outputs, losses and samples of their authors' code on fixed inputs
(fixtures/parity), and the same readers on folders that are written here."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import unnoise
from decoders import DREAM, MASK, TEXTS, VOCAB, biased, random_weights, write_huggingface, write_llada, write_md4
from unnoise.cli.main import main
from unnoise.denoiser import predict
from unnoise.families.block import BlockParameterization, BlockSampler
from unnoise.model.model import Model
from unnoise.network.attention import KVCache
from unnoise.network.llama import Llama
from unnoise.objective import Elbo
from unnoise.sampler import Confidence, EntropyBounded, Sampler, sample, sample_frames
from unnoise.sampler_table import named_sampler

PARITY = Path(os.environ.get("UNNOISE_PARITY", Path(__file__).parents[1] / "fixtures" / "parity"))
TYPES = ("llada", "Dream", "a2d-qwen3", "md4")
CLOSE = {"a2d-qwen3": 5e-5}  # of the outputs; 1e-5 for the others


def fixtures(*types: str) -> list[Any]:
    """Return the fixture folders of these model types."""
    found = [
        folder
        for folder in sorted(PARITY.glob("*/"))
        if json.loads((folder / "config.json").read_text()).get("model_type") in types
    ]
    assert found, f"no fixtures in {PARITY}"
    return [pytest.param(folder, id=folder.name) for folder in found]


def opened(folder: Path, method: str | None = None) -> tuple[Model, dict[str, torch.Tensor], torch.Tensor, float]:
    """Return the model, its expected outputs, the noised text in our token numbers, and the tolerance."""
    expected = load_file(folder / "expected.safetensors")
    mask = int(expected["mask_id"]) if "mask_id" in expected else None
    model = unnoise.load(folder, mask_token=mask, method=method)
    kind = json.loads((folder / "config.json").read_text())["model_type"]
    return model, expected, noised(model, expected["input_ids"]), CLOSE.get(kind, 1e-5)


def noised(model: Model, ids: torch.Tensor) -> torch.Tensor:
    """Tokens with our mask, state K, for theirs."""
    theirs = model.network.config.get("mask_token", model.codec.vocab)
    return ids.masked_fill(ids == theirs, model.codec.vocab)


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> bool:
    assert found.shape == expected.shape
    return torch.allclose(found, expected, rtol=0, atol=tolerance)


# ---- as their own code --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", fixtures(*TYPES))
@torch.no_grad()
def test_outputs_and_log_probabilities_are_theirs(folder: Path) -> None:
    model, expected, x, tolerance = opened(folder)
    logits = expected.get("logits_shifted", expected["logits"])
    assert close(model.network(x, expected["t"]), logits, tolerance)
    where = x == model.codec.vocab
    assert close(model.network(x, expected["t"], where), logits[where], tolerance)
    assert close(model.denoiser(x, expected["t"]).values, expected["log_probs"], tolerance)
    if "logits_shifted" in expected:
        assert close(model.network(x)[:, 1:], expected["logits"][:, :-1], tolerance)
        assert close(model.network(x)[:, 0], expected["logits"][:, 0], tolerance)


@pytest.mark.parametrize("folder", fixtures(*TYPES))
@torch.no_grad()
def test_losses_are_theirs_by_our_objective(folder: Path) -> None:
    model, expected, x, _ = opened(folder)
    t, where, x0 = expected["t"].double(), x == model.codec.vocab, expected["x0"]
    bound = Elbo(model.process)
    prediction = predict(model.denoiser, model.process, x, t, where)
    nats = bound.term(prediction, x0[where], x[where], t[:, None].expand(x.shape)[where])
    assert torch.allclose(nats, expected["nll"][where].to(nats.dtype), rtol=1e-4, atol=0)
    assert (expected["nll"][~where] == 0).all()
    assert torch.allclose(bound.at(model.denoiser, x0, x, t), expected["nll"].sum(1).to(nats.dtype), rtol=1e-4)
    if "alpha" in expected:
        assert torch.allclose(model.process.schedule.alpha(t), expected["alpha"].double(), rtol=1e-5)
    if "loss_diff" in expected:
        assert torch.allclose(bound.at(model.denoiser, x0, x, t), expected["loss_diff"].to(nats.dtype), rtol=1e-4)


@pytest.mark.parametrize("folder", fixtures("llada", "Dream", "a2d-qwen3"))
@torch.no_grad()
def test_padding_is_seen_by_nobody(folder: Path) -> None:
    model, expected, x, tolerance = opened(folder)
    present = expected["attention_mask"].bool()
    found = model.network(x, present=present)
    padded = expected["logits_padded"]
    if model.network.config["shift"]:
        found, padded, present = found[:, 1:], padded[:, :-1], (present[:, 1:] & present[:, :-1])
    assert close(found[present], padded[present], tolerance)


@pytest.mark.parametrize("folder", fixtures("a2d-qwen3"))
@torch.no_grad()
def test_blocks_are_theirs_at_once_and_from_a_cache(folder: Path) -> None:
    size = int(load_file(folder / "expected.safetensors")["block_size"])
    model, expected, x, tolerance = opened(folder, f"bd3lm:block={size}")
    blocks, x0 = model.denoiser, expected["x0"]
    assert isinstance(blocks, BlockParameterization)
    every = torch.ones_like(x, dtype=torch.bool)
    at_once = blocks.blocks(x, x0, torch.ones(x.shape), every, size).log_probs.view(*x.shape, -1)
    assert close(at_once, torch.log_softmax(expected["logits_bd3lm"], -1), tolerance)
    text = noised(model, expected["block_causal_input_ids"])
    cache, found = KVCache(), []
    for start in range(0, text.shape[1], size):
        found.append(model.network(text[:, start : start + size], cache=cache))
    assert close(torch.cat(found, 1), expected["logits_block_causal"], tolerance)


GREEDY = {
    "generate_block16": "confidence:steps=8,temperature=0,spread=even,block=16",
    "generate_block8": "confidence:steps=8,temperature=0,spread=even,block=8",
    "generate_maskgit_plus": "confidence:steps=8,temperature=0,spread=floor",
    "generate_topk_margin": "confidence:steps=8,temperature=0,spread=floor,by=margin",
    "generate_entropy": "confidence:steps=8,temperature=0,spread=floor,by=entropy",
}


@pytest.mark.parametrize("folder", fixtures("llada", "Dream"))
def test_greedy_samples_are_theirs_token_by_token(folder: Path) -> None:
    model, expected, _, _ = opened(folder)
    compared = 0
    for key, sampler in GREEDY.items():
        if key not in expected:
            continue
        wanted, prompt = expected[key], expected["generate_prompt"]
        given = torch.full_like(wanted, -1)
        given[:, : prompt.shape[1]] = prompt
        batch, length = given.shape
        drawn = sample(
            model.process,
            model.denoiser,
            batch=batch,
            length=length,
            sampler=named_sampler(sampler),
            given=given,
            time_free=True,
        )
        assert torch.equal(drawn, wanted), key
        compared += 1
    assert compared >= 2
    prompt = expected["generate_prompt"][:1]
    text = model.complete(
        prefix=model.codec.decode(prompt[0]),
        length=prompt.shape[1] + 4,
        sampler="confidence:block=2,spread=even",
        temperature=0,
        steps=4,
    )
    assert text[0].startswith(model.codec.decode(prompt[0]))


@pytest.mark.parametrize("folder", fixtures(*TYPES))
def test_every_verb_works(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, expected, x, _ = opened(folder)
    ids = expected["x0"][0, :8]
    text = model.codec.decode(ids)
    if model.codec.eos in ids.tolist():
        text = model.codec.decode([token for token in ids.tolist() if token != model.codec.eos])
    assert len(model.generate(2, length=8, steps=4)) == 2
    assert model.infill(f"{text} [MASK]", steps=2)[0].startswith(text)
    assert model.complete(prefix=text, length=12, steps=4)[0].startswith(text)
    score = model.score(text, samples=4)
    assert np.isfinite(score.nats) and score.nats > 0 and not score.exact
    model.save(tmp_path / "ours")
    again = unnoise.load(tmp_path / "ours")
    assert again.method.name == model.method.name
    with torch.no_grad():
        assert torch.equal(again.network(x, expected["t"]), model.network(x, expected["t"]))
    (tmp_path / "text.txt").write_text(f"{text} " * (40 + 3 * model.length))
    assert main(["eval", "--model", str(tmp_path / "ours"), "--data", str(tmp_path / "text.txt"), "--windows", "1"]) == 0
    assert "bits per" in capsys.readouterr().out
    assert main(["info", str(folder), "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    assert described["parameters"] == model.num_parameters and described["method"] == model.method.name
    assert main(["convert", str(folder), "--out", str(tmp_path / "converted")]) == 0
    assert unnoise.load(tmp_path / "converted").network.config == {
        **model.network.config,
        **({"mask_token": model.codec.vocab - 1} if "mask_id" in expected else {}),
    }


# ---- folders written here -----------------------------------------------------------------------------------------------


@torch.no_grad()
def test_the_families_differ_in_what_they_should(tmp_path: Path) -> None:
    """Load the same weights as each family: Dream's outputs equal LLaDA's, one position later."""
    weights = random_weights(VOCAB)
    write_huggingface(tmp_path / "dream", biased(weights), **DREAM)
    write_huggingface(tmp_path / "plain", weights, **DREAM)
    write_llada(tmp_path / "llada", weights)
    dream, llada = unnoise.load(tmp_path / "plain"), unnoise.load(tmp_path / "llada")
    x = torch.randint(VOCAB + 1, (2, 9), generator=torch.Generator().manual_seed(2))
    assert torch.allclose(dream.network(x)[:, 1:], llada.network(x)[:, :-1], atol=1e-5)
    assert not torch.allclose(unnoise.load(tmp_path / "dream").network(x), dream.network(x), atol=0.1)
    masked = x.masked_fill(x == VOCAB, MASK)
    assert torch.equal(llada.network(masked), llada.network(x))  # the mask is that token
    assert dream.method.name == "mdlm:eps=0" and dream.codec.eos == 2 and dream.length == 40
    assert llada.codec.kind == "numbers" and dream.codec.kind == "tokenizer"
    assert dream.codec.decode(dream.codec.encode(TEXTS[0])) == TEXTS[0]
    soft = torch.nn.functional.one_hot(x, VOCAB + 1).float()
    assert torch.allclose(llada.network(soft), llada.network(x), atol=1e-5)


def test_which_method_and_which_mask_a_folder_says(tmp_path: Path) -> None:
    weights = random_weights(VOCAB)

    def method(name: str, kind: str, **described: object) -> str:
        write_huggingface(tmp_path / name, weights, model_type=kind, mask_token_id=MASK, **described)
        return unnoise.load(tmp_path / name).method.name

    assert method("SDAR-1.7B-Chat", "sdar") == "bd3lm:block=4"
    assert method("SDAR-1.7B-Chat-b16", "sdar") == "bd3lm:block=16"
    assert method("sdar-b16", "sdar", block_size=8) == "bd3lm:block=8"
    assert method("Fast_dLLM_v2", "Fast_dLLM_Qwen", bd_size=2) == "bd3lm:block=2"
    assert method("Qwen3-diffusion-mdlm", "a2d-qwen3") == "mdlm:eps=0"
    assert method("Qwen3-diffusion-bd3lm-v0.1", "a2d-qwen3") == "bd3lm:block=32"
    assert unnoise.load(tmp_path / "sdar-b16", method="mdlm").method.name == "mdlm"
    folder = tmp_path / "unnamed"
    write_huggingface(folder, weights, model_type="a2d-qwen3")
    with pytest.warns(UserWarning, match=f"nothing names the mask token, so that token {VOCAB - 1} is taken for it"):
        assert unnoise.load(folder).network.config["mask_token"] == VOCAB - 1
    assert unnoise.load(folder, mask_token=7).network.config["mask_token"] == 7
    described = json.loads((folder / "tokenizer.json").read_text())
    described["added_tokens"].append(
        {"id": 290, "content": "<|mask|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        | {"special": True}
    )
    (folder / "tokenizer.json").write_text(json.dumps(described))
    assert unnoise.load(folder).network.config["mask_token"] == 290
    (folder / "tokenizer_config.json").write_text(json.dumps({"mask_token": {"content": "a"}}))
    assert unnoise.load(folder).network.config["mask_token"] == unnoise.load(folder).codec.encode("a")[0]
    with pytest.raises(ValueError, match="mask_token must be one of its tokens 0…319, found 320"):
        unnoise.load(folder, mask_token=VOCAB)
    with pytest.raises(ValueError, match="mask_token, method and codec are for published models"):
        unnoise.load("stories", mask_token=3)


@pytest.mark.parametrize("kind", ["sdar", "Fast_dLLM_Qwen"])
@torch.no_grad()
def test_blocks_from_a_cache_equal_the_whole_also_where_outputs_are_shifted(tmp_path: Path, kind: str) -> None:
    write_huggingface(tmp_path, random_weights(VOCAB), model_type=kind, mask_token_id=MASK, block_size=4, bd_size=4)
    model = unnoise.load(tmp_path)
    blocks = model.denoiser
    assert isinstance(blocks, BlockParameterization)
    x0 = torch.randint(VOCAB, (2, 12), generator=torch.Generator().manual_seed(3))
    hidden = torch.rand(x0.shape, generator=torch.Generator().manual_seed(4)) < 0.5
    hidden[:, 4] = True  # the first of a block, which a shifted model predicts from the clean token before it
    x_t = x0.masked_fill(hidden, model.process.mask)
    whole = blocks.blocks(x_t, x0, torch.ones(x0.shape), hidden, 4).log_probs
    cache, parts = KVCache(), torch.zeros(*x0.shape, VOCAB)
    for start in range(0, 12, 4):
        here = slice(start, start + 4)
        parts[:, here] = blocks.within(cache)(x_t[:, here], torch.ones(2)).values
        some = blocks.within(cache)(x_t[:, here], torch.ones(2), hidden[:, here]).values
        assert torch.allclose(some, parts[:, here][hidden[:, here]], atol=1e-5)
        blocks.read(x0[:, here], cache)
    assert torch.allclose(parts[hidden], whole, atol=1e-5)
    for changed in range(12):  # nothing that comes later, and nothing that is hidden, is seen
        other = x0.clone()
        other[:, changed] = (other[:, changed] + 1) % VOCAB
        seen = blocks.blocks(x_t, other, torch.ones(x0.shape), hidden, 4).log_probs != whole
        later = (torch.arange(12) // 4 > changed // 4).expand(2, -1)[hidden]
        assert torch.equal(seen.any(1), later)
    model.network.double()
    with_cache, without = (
        model.generate(2, length=12, seed=1, sampler=BlockSampler(cache=cache_kept)) for cache_kept in (True, False)
    )
    assert with_cache == without


def test_weights_stay_on_the_disk_in_half_precision(tmp_path: Path) -> None:
    half = {name: weight.bfloat16() for name, weight in random_weights(VOCAB).items()}
    write_huggingface(tmp_path / "half", half, **DREAM)
    shards = {name: f"model-{i % 3}.safetensors" for i, name in enumerate(half)}
    for file in set(shards.values()):
        save_file({name: half[name] for name in half if shards[name] == file}, tmp_path / "half" / file)
    (tmp_path / "half" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    (tmp_path / "half" / "model.safetensors").unlink()
    model = unnoise.load(tmp_path / "half")
    matrices = [weight for weight in model.network.parameters() if weight.dim() == 2]
    assert all(weight.dtype == torch.bfloat16 for weight in matrices)
    write_huggingface(tmp_path / "full", {name: weight.float() for name, weight in half.items()}, **DREAM)
    x = torch.randint(VOCAB + 1, (2, 9), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        raised = unnoise.load(tmp_path / "full").network(x)
        assert model.network(x).dtype == torch.float32
        assert torch.allclose(model.network(x), raised, atol=1e-5)
    model.save(tmp_path / "ours")
    assert load_file(tmp_path / "ours" / "model.safetensors")["network.head.weight"].dtype == torch.bfloat16
    with torch.no_grad():
        assert torch.allclose(unnoise.load(tmp_path / "ours").network(x), raised, atol=1e-5)
    report = unnoise.train(model, TEXTS, steps=2, batch=2)
    assert report.steps == 2 and all(weight.dtype == torch.float32 for weight in model.network.parameters())


def test_confidence_is_the_networks_own_where_the_likeliest_token_is_taken() -> None:
    """At temperature 0 the surest position is still first, and not the first."""
    process = unnoise.Masked(vocab=3, schedule=unnoise.Linear())
    table = torch.tensor([[0.4, 0.3, 0.3], [0.1, 0.8, 0.1], [0.2, 0.2, 0.6]]).log()

    def denoiser(x_t: torch.Tensor, t: torch.Tensor, where: torch.Tensor | None = None) -> unnoise.MeanPrediction:
        every = table.expand(len(x_t), -1, -1)
        return unnoise.MeanPrediction(every if where is None else every[where])

    def states(sampler: Sampler) -> list[list[int]]:
        frames = sample_frames(process, denoiser, batch=1, length=3, sampler=sampler, time_free=True)
        return [frame.x[0].tolist() for frame in frames]

    assert states(Confidence(steps=3, temperature=0)) == [[3, 3, 3], [3, 1, 3], [3, 1, 2], [0, 1, 2]]
    assert states(Confidence(steps=3, temperature=0, block=1)) == [[3, 3, 3], [0, 3, 3], [0, 1, 3], [0, 1, 2]]
    assert states(Confidence(steps=2, temperature=0, spread="even")) == [[3, 3, 3], [3, 1, 2], [0, 1, 2]]
    assert states(Confidence(steps=2, temperature=0, spread="floor")) == [[3, 3, 3], [3, 1, 3], [0, 1, 2]]
    bounded = states(EntropyBounded(steps=3, temperature=0, budget=0.0))
    assert bounded == [[3, 3, 3], [3, 1, 3], [3, 1, 2], [0, 1, 2]]
    for fields, words in (({"spread": "x"}, "spread must be"), ({"block": -1}, "block must be a whole number ≥ 0, found -1")):
        with pytest.raises(ValueError, match=words):
            Confidence(**fields)


# ---- the hub ------------------------------------------------------------------------------------------------------------


def test_a_hub_id_is_looked_up_in_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("huggingface_hub", reason="the hub extra is not installed")
    from huggingface_hub import constants

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with pytest.raises(ValueError, match="there is no model in owner/Name-b8, and none could be fetched from the hub"):
        unnoise.load("owner/Name-b8")
    assert main(["info", "owner/Name-b8"]) == 2 and "could be fetched" in capsys.readouterr().err
    kept = tmp_path / "cache" / "models--owner--Name-b8"
    (kept / "refs").mkdir(parents=True)
    (kept / "refs" / "main").write_text("0" * 40)
    (kept / "snapshots").mkdir()
    write_huggingface(kept / "snapshots" / ("0" * 40), random_weights(VOCAB), model_type="sdar", mask_token_id=MASK)
    monkeypatch.setattr("huggingface_hub._snapshot_download.HF_HUB_CACHE", str(tmp_path / "cache"), raising=False)
    model = unnoise.load("owner/Name-b8")
    assert model.method.name == "bd3lm:block=8" and model.notes["origin"] == "Name-b8"
    (tmp_path / "owner").mkdir()  # then it is a path
    with pytest.raises(ValueError, match="there is no model in owner/Name-b8: give a folder"):
        unnoise.load("owner/Name-b8")


def test_without_huggingface_hub_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(ValueError, match=r"there is no model in owner/name; to fetch .* install unnoise\[hub\]"):
        unnoise.load("owner/name")


# ---- mistakes -----------------------------------------------------------------------------------------------------------

ODD = [None, True, False, 0, -1, 1, 3, 2**40, 10**400, 0.5, -2.5, 1e400, float("nan"), "", "x", "32", [], [1], {}, {"a": 1}]


def test_a_tiny_md4_opens_and_one_with_another_schedule(tmp_path: Path) -> None:
    write_md4(tmp_path)
    model = unnoise.load(tmp_path)
    assert model.method.name == "md4:offset=0.0001,schedule=poly3" and len(model.generate(1, steps=4)[0]) == 16
    t = torch.tensor([0.5], dtype=torch.float64)
    assert torch.allclose(model.process.schedule.alpha(t), (1 - 2e-4) * (1 - t**3) + 1e-4)
    trained = unnoise.Model.build("md4", length=12, size="nano", network="md4:embed_width=8,mlp_type=swiglu")
    assert unnoise.train(trained, ["the cat sat on the mat"] * 20, steps=2, batch=2).steps == 2


def refused_or_open(folder: Path) -> str:
    """Return the one-sentence error of a folder that cannot be opened, or "" for a model that evaluates."""
    try:
        model = unnoise.load(folder, mask_token=5) if (folder / "params.npz").exists() is False else unnoise.load(folder)
    except ValueError as error:
        assert "\n" not in str(error) and len(str(error)) < 700, str(error)
        return str(error)
    with torch.no_grad():
        length = min(4, model.length)
        out = model.denoiser(torch.full((1, length), model.codec.vocab), torch.full((1,), 0.5))
    assert out.values.shape == (1, length, model.codec.vocab) and bool(torch.isfinite(out.values).all())
    return ""


@pytest.mark.parametrize("kind", ["llada", "Dream", "md4"])
def test_configurations_with_a_wrong_value_are_refused_in_one_sentence(tmp_path: Path, kind: str) -> None:
    """Every field with every odd value: refused, or of no effect on what is computed."""
    write = {"llada": lambda: write_llada(tmp_path, random_weights(VOCAB)), "md4": lambda: write_md4(tmp_path)}
    write.get(kind, lambda: write_huggingface(tmp_path, random_weights(VOCAB), **DREAM))()
    described = json.loads((tmp_path / "config.json").read_text())
    needed = {"hidden_size", "num_hidden_layers", "d_model", "n_layers", "n_heads", "num_attention_heads", "feature_dim"}
    variants = 0
    for name in described:
        for value in ODD:
            changed = described | {name: value}
            (tmp_path / "config.json").write_text(json.dumps(changed))
            if name == "model_type":
                with pytest.raises(ValueError, match=r"cannot be read|is not a configuration"):
                    unnoise.load(tmp_path)
                continue
            said = refused_or_open(tmp_path)
            variants += 1
            if name in needed and value != described[name]:
                assert "cannot be read" in said or "network's" in said, (name, value, said)
        without = {key: value for key, value in described.items() if key != name}
        (tmp_path / "config.json").write_text(json.dumps(without))
        if name != "model_type":
            refused_or_open(tmp_path)
    assert variants > 200
    for content in ("[]", "7", '"x"', "{", "", '{"model_type": 3}', "\x00"):
        (tmp_path / "config.json").write_text(content)
        with pytest.raises(ValueError) as raised:
            unnoise.load(tmp_path)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["llada", "Dream"])
def test_tensors_that_are_missing_or_more_or_misshapen_are_refused(tmp_path: Path, kind: str) -> None:
    if kind == "llada":
        write_llada(tmp_path, random_weights(VOCAB))
    else:
        write_huggingface(tmp_path, biased(random_weights(VOCAB)), **DREAM)
    whole = load_file(tmp_path / "model.safetensors")

    def said(tensors: dict[str, torch.Tensor]) -> str:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
        return refused_or_open(tmp_path)

    for name, tensor in whole.items():
        assert name.replace(".bias", "") in said({key: value for key, value in whole.items() if key != name}) or ".bias" in name
        narrow = tensor[..., :-1]
        assert name in said(whole | {name: narrow}) and name in said(whole | {name: tensor[None]})
        assert name in said(whole | {name: torch.zeros(0)})
        assert "not floating-point numbers" in said(whole | {name: tensor.to(torch.int32)})
        broken = tensor.clone()
        broken.view(-1)[-1] = torch.nan
        assert "not finite" in said(whole | {name: broken})
    assert "model.more" in said(whole | {"model.more": torch.zeros(3)})
    assert said(whole) == ""
    content = (tmp_path / "model.safetensors").read_bytes()
    generator = np.random.default_rng(0)
    for _ in range(60):
        start = int(generator.integers(0, 2000))
        damaged = bytearray(content)
        damaged[start] ^= 1 << int(generator.integers(8))
        (tmp_path / "model.safetensors").write_bytes(damaged if generator.random() < 0.7 else content[: start * 20])
        refused_or_open(tmp_path)


def test_a_damaged_npz_is_refused(tmp_path: Path) -> None:
    write_md4(tmp_path)
    path = tmp_path / "params.npz"
    whole = dict(np.load(path))
    for name, array in whole.items():
        np.savez(path, **{key: value for key, value in whole.items() if key != name})
        assert name in refused_or_open(tmp_path)
        np.savez(path, **(whole | {name: array[..., :-1]}))
        assert "has shape" in refused_or_open(tmp_path)
    np.savez(path, **whole, more=np.zeros(2))
    assert "more is unknown" in refused_or_open(tmp_path)
    np.savez(path, **(whole | {"classifier/Transformer_0/Embed_0/embedding": np.array([object()])}), allow_pickle=True)
    assert "cannot be read" in refused_or_open(tmp_path)
    for content in (b"", b"PK", b"x" * 100):
        path.write_bytes(content)
        assert "params.npz is damaged" in refused_or_open(tmp_path)
    path.unlink()
    assert "params.npz is missing" in refused_or_open(tmp_path)


def test_the_network_has_what_they_need() -> None:
    for fields, words in (
        ({"mask_token": 9}, "mask_token must be one of its tokens 0…7, found 9"),
        ({"mask_token": True}, "mask_token must be one of its tokens"),
        ({"tied": True, "mask_token": 2, "outputs": 9}, "a tied head needs outputs ≤ inputs, found 9 and 8"),
    ):
        with pytest.raises(ValueError, match=words):
            Llama(**{"inputs": 9, "outputs": 8, "length": 12, "width": 16, "depth": 1, "heads": 2} | fields)
    with pytest.raises(ValueError, match="features must be an even number"):
        unnoise.Model.build("md4", length=8, network="md4:features=3")
    with pytest.raises(ValueError, match="texts are numbers of tokens, 0 to 11, with blanks between them, found 'the'"):
        unnoise.codec("numbers-12").encode("3 the")

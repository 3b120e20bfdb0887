"""GPT-2: the network against plain formulas, and checkpoints against the outputs of transformers (fixtures/parity/gpt2)."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import unnoise
from decoders import write_gpt2
from malformed import limits
from unnoise.checkpoint.published.tensor_files import PICKLE, WEIGHTS
from unnoise.cli.main import main
from unnoise.data.tokenizer import Bpe
from unnoise.network.attention import KVCache
from unnoise.network.gpt2 import Gpt2

FIXTURE = Path(__file__).parents[1] / "fixtures" / "parity" / "gpt2"
X = torch.randint(9, (2, 12), generator=torch.Generator().manual_seed(1))
TEXT = "The state of the union."


def network(**changes: object) -> Gpt2:
    """Return a small network in float64 with random weights."""
    shape: dict = {"inputs": 9, "outputs": 8, "length": 12, "width": 12, "depth": 2, "heads": 3} | changes
    made = Gpt2(**shape).double()
    with torch.no_grad():
        for number, weight in enumerate(made.parameters()):
            weight.copy_(0.4 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(number)))
    return made.eval()


# ---- the network --------------------------------------------------------------------------------------------------------


def plain_forward(made: Gpt2, ids: list[int]) -> Tensor:
    """Compute the outputs for one sequence, with loops over positions and heads: [L, K]."""
    w, shape = dict(made.named_parameters()), made.shape
    size = shape.width // shape.heads

    def normed(x: Tensor, name: str) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        variance = centred.square().mean(-1, keepdim=True)
        return centred / (variance + shape.norm_eps).sqrt() * w[f"{name}.weight"] + w[f"{name}.bias"]

    def affine(x: Tensor, name: str) -> Tensor:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    x = torch.stack([w["embed.weight"][token] + w["positions.weight"][i] for i, token in enumerate(ids)])
    for layer in range(shape.depth):
        name = f"blocks.{layer}"
        qkv = affine(normed(x, f"{name}.attention_norm"), f"{name}.attention.qkv").view(len(ids), 3, shape.heads, size)
        attended = torch.zeros(len(ids), shape.heads, size, dtype=x.dtype)
        for i in range(len(ids)):
            seen = range(i + 1) if shape.causal else range(len(ids))
            for head in range(shape.heads):
                scores = torch.stack([qkv[i, 0, head] @ qkv[j, 1, head] / math.sqrt(size) for j in seen]).softmax(0)
                attended[i, head] = sum(share * qkv[j, 2, head] for share, j in zip(scores, seen, strict=True))
        x = x + affine(attended.flatten(1), f"{name}.attention.out")
        h = affine(normed(x, f"{name}.norm"), f"{name}.up")
        gelu = h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3))) / 2
        x = x + affine(gelu, f"{name}.down")
    head = w["embed.weight"][: shape.outputs] if shape.tied else w["head.weight"]
    return normed(x, "norm") @ head.T


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("causal", [True, False])
@torch.no_grad()
def test_the_network_is_its_formula(causal: bool, tied: bool) -> None:
    made = network(causal=causal, tied=tied, norm_eps=0.1, hidden=20)
    expected = torch.stack([plain_forward(made, row.tolist()) for row in X])
    assert torch.allclose(made(X), expected, rtol=0, atol=1e-11)
    where = torch.rand(X.shape, generator=torch.Generator().manual_seed(2)) < 0.3
    assert torch.allclose(made(X, where=where), expected[where], rtol=0, atol=1e-11)
    soft = torch.nn.functional.one_hot(X, 9).double()
    assert torch.allclose(made(soft), expected, rtol=0, atol=1e-11)
    assert made.shape.hidden == 20 and network().shape.hidden == 48


@torch.no_grad()
def test_a_cache_gives_the_same_outputs() -> None:
    made = network(causal=True)
    whole, cache = made(X), KVCache()
    parts = [made(X[:, a:b], cache=cache) for a, b in ((0, 5), (5, 6), (6, 7), (7, 12))]
    assert torch.allclose(torch.cat(parts, 1), whole, rtol=0, atol=1e-12)
    cache = KVCache()
    made(X[:, :5], cache=cache)
    cache.frozen = True
    assert torch.equal(made(X[:, 5:8], cache=cache), made(X[:, 5:8], cache=cache)) and cache.length == 5


@torch.no_grad()
def test_masks_and_padding_hide_exactly_what_they_should() -> None:
    block = torch.arange(12) // 4
    mask = block[:, None] >= block[None, :]
    made = network(depth=1)
    out = made(X, attention_mask=mask)
    for key in range(12):
        changed = X.clone()
        changed[:, key] = (X[:, key] + 1) % 9
        assert torch.equal((made(changed, attention_mask=mask) != out).any(-1).any(0), mask[:, key])
    causal = network(causal=True)
    lower = torch.ones(12, 12, dtype=torch.bool).tril()
    assert torch.allclose(causal(X), network()(X, attention_mask=lower), rtol=0, atol=1e-12)
    present = torch.arange(12).expand(2, 12) < 9
    for one in (causal, network()):
        assert torch.allclose(one(X, present=present)[:, :9], one(X[:, :9]), rtol=0, atol=1e-12)


@torch.no_grad()
def test_x_t_with_x_0_in_blocks_is_the_mask_written_out() -> None:
    made = network(length=6)
    both = made(X, block=3)
    clean = made(
        X[:, 6:], attention_mask=torch.ones(6, 6, dtype=torch.bool).tril() | torch.block_diag(*[torch.ones(3, 3)] * 2).bool()
    )
    assert torch.allclose(both[:, 6:], clean, rtol=0, atol=1e-12)
    text = torch.cat([X[:, 6:9], X[:, 3:6]], 1)  # the second noised block after the first clean one
    later = made(text, attention_mask=(torch.arange(6) // 3)[:, None] >= (torch.arange(6) // 3)[None])
    assert torch.allclose(both[:, 3:6], later[:, 3:], rtol=0, atol=1e-12)


def test_mistakes_in_its_configuration_are_said() -> None:
    for changes, words in (
        ({"heads": 5}, "width must be a multiple of its heads, found width 12 and 5 heads"),
        ({"norm_eps": 0}, "norm_eps must be a number > 0"),
        ({"depth": 0}, "depth must be a whole number ≥ 1, found 0"),
        ({"outputs": 10}, "a tied head needs outputs ≤ inputs, found 10 and 9"),
    ):
        with pytest.raises(ValueError, match=words):
            network(**changes)
    with pytest.raises(ValueError, match="at most 12 tokens, found 13"):
        network()(torch.zeros(1, 13, dtype=torch.long))


@pytest.mark.parametrize("method", ["mdlm", "ar", "bd3lm:block=4"])
def test_it_trains_from_scratch_and_is_saved_and_loaded(method: str, tmp_path: Path) -> None:
    model = unnoise.Model.build(method, length=16, size="nano", network="gpt2")
    assert isinstance(model.network, Gpt2) and model.network.shape.causal == (method == "ar")
    before = {name: weight.clone() for name, weight in model.weights().items()}
    unnoise.train(model, ["the cat sat on the mat"] * 20, steps=3, batch=2, dropout=0.1)
    assert all(not torch.equal(before[name], weight) for name, weight in model.weights().items())
    model.save(tmp_path / "m")
    again = unnoise.load(tmp_path / "m")
    assert again.generate(1, seed=3) == model.generate(1, seed=3)


# ---- as transformers computes it ---------------------------------------------------------------------------------------


@torch.no_grad()
def test_logits_and_likelihoods_are_those_of_transformers() -> None:
    model, expected = unnoise.load(FIXTURE), load_file(FIXTURE / "expected.safetensors")
    ids, vocab = expected["input_ids"], model.codec.vocab
    assert model.method.name == "ar" and model.length == 40 and vocab == 257 and model.codec.eos == 256
    assert torch.allclose(model.network(ids), expected["logits"], rtol=0, atol=1e-5)
    started = ids.clone()
    started[:, 0] = vocab  # our start symbol stands for the begin token
    assert torch.allclose(model.network(started), expected["logits"], rtol=0, atol=1e-5)
    assert torch.allclose(model.nats(ids[:, 1:]), expected["nll"].sum(1), rtol=1e-6)
    assert model.score(model.codec.decode(ids[0, 1:])).nats == pytest.approx(float(expected["nll"][0].sum()), rel=1e-6)
    cache, parts = KVCache(), []
    for first, last in ((0, 7), (7, 8), (8, 9), (9, 40)):
        parts.append(model.network(started[:, first:last], cache=cache))
    assert torch.allclose(torch.cat(parts, 1), expected["logits"], rtol=0, atol=1e-5)


def test_greedy_continuations_are_those_of_transformers() -> None:
    model, expected = unnoise.load(FIXTURE), load_file(FIXTURE / "expected.safetensors")
    for prompt, wanted in zip(expected["generate_prompt"], expected["generate_greedy"], strict=True):
        text = model.complete(prefix=model.codec.decode(prompt[1:]), length=len(wanted) - 1, temperature=0)[0]
        assert text == model.codec.decode(wanted[1:])


# ---- folders ------------------------------------------------------------------------------------------------------------


def renamed(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name.removeprefix('transformer.')}": tensor for name, tensor in tensors.items()}


def with_masks(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    masks = {f"h.{layer}.attn.bias": torch.ones(1, 1, 40, 40).tril() for layer in range(2)}
    masks |= {f"h.{layer}.attn.masked_bias": torch.tensor(-1e4) for layer in range(2)}
    return renamed(prefix, tensors) | {f"{prefix}{name}": mask for name, mask in masks.items()}


OLDER: dict[str, Callable[[dict[str, Tensor]], dict[str, Tensor]]] = {
    "without a prefix": lambda tensors: renamed("", tensors),
    "with masks": lambda tensors: with_masks("transformer.", tensors),
    "as on the hub": lambda tensors: with_masks("", tensors),
    "with a copy of the embedding": lambda tensors: (
        with_masks("transformer.", tensors) | {"lm_head.weight": tensors["transformer.wte.weight"].clone()}
    ),
}


@pytest.mark.parametrize("pickled", [False, True])
@pytest.mark.parametrize("kind", OLDER)
@torch.no_grad()
def test_older_files_hold_the_same_model(kind: str, pickled: bool, tmp_path: Path) -> None:
    write_gpt2(tmp_path)
    expected = load_file(FIXTURE / "expected.safetensors")
    tensors = OLDER[kind](load_file(tmp_path / WEIGHTS))
    if pickled:
        (tmp_path / WEIGHTS).unlink()
        torch.save(tensors, tmp_path / PICKLE)
    else:
        save_file(tensors, tmp_path / WEIGHTS)
    model = unnoise.load(tmp_path)
    assert torch.allclose(model.network(expected["input_ids"]), expected["logits"], rtol=0, atol=1e-5)


@torch.no_grad()
def test_half_precision_and_a_head_of_its_own(tmp_path: Path) -> None:
    write_gpt2(
        tmp_path, tie_word_embeddings=False, n_inner=128, layer_norm_epsilon=0.25, activation_function="gelu_pytorch_tanh"
    )
    tensors = {name: tensor.half() for name, tensor in load_file(tmp_path / WEIGHTS).items()}
    with pytest.raises(ValueError, match=r"the tensor lm_head.weight is missing"):
        unnoise.load(tmp_path)
    save_file(tensors | {"lm_head.weight": tensors["transformer.wte.weight"].flip(0)}, tmp_path / WEIGHTS)
    model = unnoise.load(tmp_path)
    made = Gpt2(**model.network.config)
    assert model.network.config["norm_eps"] == 0.25 and model.network.config["hidden"] == 128
    made.load_state_dict({name: weight.float() for name, weight in model.network.state_dict().items()})
    assert next(model.network.parameters()).dtype == torch.float16
    ids = torch.randint(257, (2, 9), generator=torch.Generator().manual_seed(3))
    out = model.network(ids)
    assert out.dtype == torch.float32 and torch.allclose(out, made(ids), rtol=0, atol=1e-5)
    assert torch.allclose(out[0], plain_forward(made.double(), ids[0].tolist()).float(), rtol=0, atol=1e-4)


def test_both_forms_of_its_tokenizer_give_the_same_tokens(tmp_path: Path) -> None:
    write_gpt2(tmp_path / "two files")
    write_gpt2(tmp_path / "one file")
    Bpe.gpt2(tmp_path / "two files").save(tmp_path / "one file")
    for name in ("vocab.json", "merges.txt"):
        (tmp_path / "one file" / name).unlink()
    two, one = unnoise.load(tmp_path / "two files"), unnoise.load(tmp_path / "one file")
    ids = two.codec.encode(TEXT).tolist()
    assert ids == one.codec.encode(TEXT).tolist() and two.codec.decode(ids) == TEXT
    assert two.codec.encode("a<|endoftext|>").tolist()[-1] == two.codec.eos == one.codec.eos == 256
    numbers = unnoise.load(FIXTURE)
    assert numbers.codec.unit == "token" and numbers.score(" ".join(map(str, ids))).nats == two.score(TEXT).nats
    chosen = unnoise.load(FIXTURE, codec=tmp_path / "one file")
    assert chosen.codec.eos == 256 and chosen.score(TEXT).nats == two.score(TEXT).nats


def test_every_command_serves_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_gpt2(tmp_path / "gpt2")
    folder = str(tmp_path / "gpt2")

    def said(*line: str) -> str:
        assert main([*line, "--model", folder]) == 0
        return capsys.readouterr().out

    assert "bits per character (exact" in said("score", TEXT)
    assert said("complete", "--prefix", "The", "--length", "12").startswith("--- 1\nThe")
    assert len(said("generate", "--num-samples", "2", "--length", "8")) > 0
    assert main(["info", folder, "--json"]) == 0
    described = json.loads(capsys.readouterr().out)
    model = unnoise.load(folder)
    assert described["method"] == "ar" and described["parameters"] == model.num_parameters
    (tmp_path / "wikitext2.txt").write_text("\n".join([" = Title = ", "", f" {TEXT} " * 6, ""] * 4))
    found = json.loads(said("eval", "--data", str(tmp_path / "wikitext2.txt"), "--protocol", "sedd", "--json"))
    assert found["bound"]["exact"] and found["length"] == 40
    assert main(["convert", folder, "--out", str(tmp_path / "ours")]) == 0
    assert unnoise.load(tmp_path / "ours").score(TEXT).nats == model.score(TEXT).nats


def test_a_diffusion_model_starts_from_it_with_the_first_of_its_positions(tmp_path: Path) -> None:
    write_gpt2(tmp_path)
    source = unnoise.load(tmp_path)
    model = unnoise.init_from(source, "mdlm", length=16)
    old, new = source.network.state_dict(), model.network.state_dict()
    assert not model.network.config["causal"]
    for name, weight in new.items():
        assert torch.equal(weight, old[name][:16] if name == "positions.weight" else old[name]), name


# ---- mistakes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"activation_function": "gelu"}, "its activation_function is 'gelu', not 'gelu_new'"),
        ({"activation_function": 7}, "its activation_function is 7, not 'gelu_new'"),
        ({"activation_function": []}, "its activation_function is [], not 'gelu_new'"),
        ({"scale_attn_by_inverse_layer_idx": True}, "its scale_attn_by_inverse_layer_idx is True, not False"),
        ({"scale_attn_weights": False}, "its scale_attn_weights is False, not True"),
        ({"n_embd": "32"}, "its n_embd must be a whole number ≥ 1, found '32'"),
        ({"n_head": 5}, "a network's width must be a multiple of its heads, found width 32 and 5 heads"),
        ({"n_layer": 1}, "the tensor h.1.attn.c_attn.bias is unknown to a network of the GPT-2 type"),
        ({"n_layer": 3}, "the tensor h.2.ln_1.weight is missing"),
        ({"n_inner": 100}, "the tensor h.0.mlp.c_fc.weight has shape [32, 128], not [32, 100]"),
        ({"n_positions": 41}, "the tensor wpe.weight has shape [40, 32], not [41, 32]"),
        ({"n_positions": 2**40}, "its n_positions must be a whole number ≥ 1, found 1099511627776"),
        ({"vocab_size": 256}, "its eos_token_id must be one of its tokens 0…255, found 256"),
        ({"vocab_size": 260}, "the tensor wte.weight has shape [257, 32], not [260, 32]"),
        ({"bos_token_id": None, "eos_token_id": None}, "names neither a begin nor an end token"),
        ({"layer_norm_epsilon": -1}, "its layer_norm_epsilon must be a number > 0, found -1"),
        ({"tie_word_embeddings": "yes"}, "its tie_word_embeddings must be true or false, found 'yes'"),
    ],
)
def test_odd_configurations_are_refused_in_one_sentence(changes: dict, words: str, tmp_path: Path) -> None:
    write_gpt2(tmp_path, **changes)
    with pytest.raises(ValueError) as raised:
        unnoise.load(tmp_path)
    assert words in str(raised.value) and "\n" not in str(raised.value)


def test_odd_tensors_and_files_are_refused_in_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_gpt2(tmp_path)
    whole = load_file(tmp_path / WEIGHTS)

    def said() -> str:
        with pytest.raises(ValueError) as raised:
            unnoise.load(tmp_path)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    for name, tensor in whole.items():
        short = name.removeprefix("transformer.")
        save_file({key: value for key, value in whole.items() if key != name}, tmp_path / WEIGHTS)
        assert f"the tensor {short} is missing" in said()
        save_file(whole | {name: tensor[..., :-1].contiguous()}, tmp_path / WEIGHTS)
        assert f"the tensor {short} has shape" in said()
        broken = tensor.clone()
        broken.view(-1)[-1] = torch.nan
        save_file(whole | {name: broken}, tmp_path / WEIGHTS)
        assert f"the tensor {short} holds numbers that are not finite" in said()
    save_file(whole | {"transformer.h.0.crossattention.c_attn.weight": torch.zeros(3)}, tmp_path / WEIGHTS)
    assert "h.0.crossattention.c_attn.weight is unknown to a network of the GPT-2 type" in said()
    square = whole["transformer.h.0.attn.c_attn.weight"].T.contiguous()
    save_file(whole | {"transformer.h.0.attn.c_attn.weight": square}, tmp_path / WEIGHTS)
    assert "the tensor h.0.attn.c_attn.weight has shape [96, 32], not [32, 96]" in said()
    save_file(whole, tmp_path / WEIGHTS)
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 900}')
    assert "must number them 0 to 1, found 900" in said()
    (tmp_path / "vocab.json").write_text("{")
    assert "the vocabulary in" in said()
    (tmp_path / "vocab.json").unlink()
    (tmp_path / WEIGHTS).write_bytes((FIXTURE / WEIGHTS).read_bytes()[:5000])
    assert "corrupted or truncated" in said()
    (tmp_path / WEIGHTS).unlink()
    assert "model.safetensors is missing" in said()
    assert main(["score", TEXT, "--model", str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1


def test_a_vocabulary_that_never_ends_is_refused(tmp_path: Path) -> None:
    write_gpt2(tmp_path)
    for name in ("vocab.json", "merges.txt"):
        kept = (tmp_path / name).read_bytes()
        (tmp_path / name).unlink()
        os.mkfifo(tmp_path / name)
        with limits(seconds=5), pytest.raises(ValueError, match=f"{name} is not a regular file"):
            unnoise.load(tmp_path)
        (tmp_path / name).unlink()
        (tmp_path / name).write_bytes(kept)

"""Models from elsewhere: logits equal to theirs, from every format; and what is damaged or odd, refused in one sentence."""

import copy
import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import unnoise
from decoders import TEXTS, forward, random_weights, write_gguf, write_huggingface, write_llama2c
from unnoise.cli.main import main
from unnoise.model.model import Model
from unnoise.network.attention import KVCache
from unnoise.network.llama import Llama

WORDS = [
    *(chr(c) for c in range(ord("a"), ord("z") + 1)),
    " ",
    "O",
    "T",
    ".",
    ",",
    " a",
    " t",
    "he",
    " c",
    "at",
    " cat",
    " the",
]
VOCAB = 320


def logits(model: Model, ids: list[int], cached: bool = False) -> torch.Tensor:
    """Of a text after the start symbol, at once or in parts: [L, K]."""
    x = torch.tensor([[model.codec.vocab, *ids]])
    with torch.no_grad():
        if not cached:
            return model.network(x)[0]
        cache = KVCache()
        return torch.cat([model.network(x[:, a:b], cache=cache) for a, b in ((0, 3), (3, 4), (4, x.shape[1]))], 1)[0]


def check_logits(model: Model, ids: list[int], expected: torch.Tensor) -> None:
    """In float64, where only a mistake makes a difference, whole and cached; the model stays as it is."""
    precise = copy.deepcopy(model)
    precise.network.double()
    for cached in (False, True):
        assert torch.allclose(logits(precise, ids, cached), expected, rtol=0, atol=1e-11)


# ---- the formats ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
def test_a_huggingface_folder_computes_as_it_should_and_may_be_in_shards_of_half_precision(tmp_path: Path, tied: bool) -> None:
    weights = random_weights(VOCAB, tied)
    write_huggingface(tmp_path / "whole", weights, tie_word_embeddings=tied)
    model = unnoise.load(tmp_path / "whole")
    assert model.method.name == "ar" and model.length == 40 and model.codec.eos == 2
    ids = model.codec.encode(TEXTS[0]).tolist()
    check_logits(model, ids, forward(weights, [1, *ids]))
    half = {name: weight.bfloat16() for name, weight in weights.items()}
    write_huggingface(tmp_path / "shards", half, tie_word_embeddings=tied)
    shard_names = {name: f"model-{i % 2}.safetensors" for i, name in enumerate(half)}
    for file in set(shard_names.values()):
        save_file({name: half[name] for name in half if shard_names[name] == file}, tmp_path / "shards" / file)
    (tmp_path / "shards" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shard_names}))
    (tmp_path / "shards" / "model.safetensors").unlink()
    rounded = forward(half, [1, *ids])
    check_logits(unnoise.load(tmp_path / "shards"), ids, rounded)


@pytest.mark.parametrize("tied", [False, True])
def test_a_file_of_llama2c_computes_as_it_should(tmp_path: Path, tied: bool) -> None:
    weights = random_weights(259 + len(WORDS), tied)
    write_llama2c(tmp_path / "tiny.bin", weights, WORDS)
    model = unnoise.load(tmp_path / "tiny.bin")
    text = "The cat at the tea. Ähm,\n  a"
    ids = model.codec.encode(text).tolist()
    assert model.codec.decode(ids) == text
    pieces = [model.codec.show(token) for token in ids]
    assert pieces[:5] == [" ", "T", "he", " cat", " a"]  # " a" + "t" comes before "at" by its score
    check_logits(model, ids, forward(weights, [1, *ids]))
    assert model.codec.eos == 1 and model.codec.decode([*ids, 1, 5]) == text


@pytest.mark.parametrize("tied", [False, True])
def test_a_gguf_file_computes_as_it_should(tmp_path: Path, tied: bool) -> None:
    gguf = pytest.importorskip("gguf", reason="the eval extra is not installed")
    weights = random_weights(VOCAB, tied)
    write_gguf(tmp_path / "tiny.gguf", weights)
    model = unnoise.load(tmp_path / "tiny.gguf")
    ids = model.codec.encode(TEXTS[0]).tolist()
    assert model.codec.eos == 0 and model.codec.decode(ids) == TEXTS[0]  # without a begin token the end token comes first
    eps = float(np.float32(1e-5))  # as the file has it
    check_logits(model, ids, forward(weights, [0, *ids], eps))
    write_gguf(tmp_path / "eight.gguf", weights, quantized=True)
    kind = gguf.GGMLQuantizationType.Q8_0
    kept = {
        name: weight
        if weight.dim() == 1
        else torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(weight.numpy(), kind), kind))
        for name, weight in weights.items()
    }
    check_logits(unnoise.load(tmp_path / "eight.gguf"), ids, forward(kept, [0, *ids], eps))


CONFIGS = {
    "llama": {},
    "llama-llama3": {
        "max_position_embeddings": 64,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    },
    "mistral": {"sliding_window": 32},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 12},
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_logits_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": 2}
    torch.manual_seed(0)
    theirs = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind.partition("-")[0], **sizes | CONFIGS[kind])).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(0.1 * torch.randn(weight.shape))
    write_huggingface(tmp_path, random_weights(VOCAB))  # for its tokenizer
    theirs.save_pretrained(tmp_path)
    model = unnoise.load(tmp_path)
    assert model.length == (32 if kind == "mistral" else model.network.config["length"])
    ids = torch.randint(VOCAB, (30,), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.no_grad():
        expected = theirs(torch.tensor([[1, *ids]])).logits[0]
    for cached in (False, True):
        assert torch.allclose(logits(model, ids, cached), expected, rtol=0, atol=1e-5)


# ---- what can be done with them ---------------------------------------------------------------------------------------


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """Write a file of llama2.c."""
    write_llama2c(tmp_path / "tiny.bin", random_weights(259 + len(WORDS)), WORDS)
    return tmp_path / "tiny.bin"


def test_it_scores_writes_and_is_saved_as_a_model_of_ours(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = unnoise.load(tiny)
    score = model.score("the cat.")
    ids = model.codec.encode("the cat.")
    expected = -torch.log_softmax(logits(model, ids.tolist())[:-1].double(), -1)[torch.arange(len(ids)), ids].sum()
    assert score.exact and score.read is None and abs(score.nats - float(expected)) < 1e-3
    model.save(tiny.parent / "ours")
    again = unnoise.load(tiny.parent / "ours")
    assert again.score("the cat.").nats == score.nats and again.codec.identity() == model.codec.identity()
    assert again.generate(2, length=12, seed=5) == model.generate(2, length=12, seed=5)
    assert unnoise.codec(str(tiny.parent / "ours")).identity() == model.codec.identity()
    assert main(["score", "the cat.", "--model", str(tiny), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["nats"] == score.nats
    (tiny.parent / "stories.txt").write_text("the cat\n" * 60)
    evaluated = ["eval", "--model", str(tiny), "--data", str(tiny.parent / "stories.txt"), "--windows", "2"]
    assert main([*evaluated, "--segment", "documents"]) == 0
    assert "2 whole texts of at most 40" in capsys.readouterr().out
    assert main([*evaluated, "--segment", "documents", "--json"]) == 0
    ended = model.nats(torch.tensor([[*model.codec.encode("the cat"), model.codec.eos]]))
    assert json.loads(capsys.readouterr().out)["nats"] == pytest.approx(2 * float(ended), rel=1e-6)
    assert main(["info", str(tiny)]) == 0
    assert "llama, depth 2, width 32, heads 4" in capsys.readouterr().out


def test_what_is_written_goes_on_with_its_space(tiny: Path) -> None:
    """Strip one space from the beginning of a text, but not from the continuation of a prefix."""
    model = unnoise.load(tiny)
    before, after = model.codec.encode("the").tolist(), model.codec.encode("the cat").tolist()
    assert model.codec.decode_after(before, after[len(before) :]) == " cat" and model.codec.decode(after) == "the cat"
    text = model.complete(prefix="the", length=len(before) + 8, seed=3)[0]
    steps = list(model.chain(template="the" + "[MASK]" * 8, seed=3))
    assert text == model.codec.decode(steps[-1].ids) and text.startswith("the")


def test_writing_stops_when_every_text_has_ended(tiny: Path) -> None:
    model = unnoise.load(tiny)
    seen: list[int] = []
    options = {"seed": 0, "temperature": 4.0}
    for seed in range(40):
        seen.clear()
        options["seed"] = seed
        text = model.generate(1, on_step=lambda step: seen.append(len(step.ids)), **options)[0]
        whole = list(model.chain(**options))
        assert text == model.codec.decode(whole[-1].ids)
        ended = model.codec.eos in whole[-1].ids
        assert len(seen) == 1 + (whole[-1].ids.index(model.codec.eos) + 1 if ended else 40)
        if ended:
            return
    raise AssertionError("no text of forty has ended")


def test_a_diffusion_model_begins_with_its_weights(tiny: Path) -> None:
    """By name into a bidirectional model; the mask begins as the begin token."""
    ours = unnoise.load(tiny)
    for method in ("mdlm", "bd3lm:block=2,whole=0.5"):
        model = unnoise.init_from(ours, method, length=16)
        assert isinstance(model.network, Llama) and not model.network.config["causal"]
        for name, weight in ours.network.state_dict().items():
            assert torch.equal(weight, model.network.state_dict()[name])
        assert unnoise.train(model, TEXTS, steps=2, batch=2).steps == 2
        assert len(model.generate(1, length=8)) == 1


# ---- mistakes ---------------------------------------------------------------------------------------------------------


def test_odd_huggingface_folders_are_refused(tmp_path: Path) -> None:
    def refused(words: str) -> None:
        with pytest.raises(ValueError, match=words) as raised:
            unnoise.load(tmp_path)
        assert "\n" not in str(raised.value)

    weights = random_weights(VOCAB)
    for changes, words in (
        ({"model_type": "gemma"}, "model_type is 'gemma', and llama, mistral, qwen2, qwen3, .* can be read"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', not 'silu'"),
        ({"hidden_size": None}, "hidden_size must be a whole number ≥ 1, found None"),
        ({"intermediate_size": 65}, r"gate_proj.weight has shape \[64, 32\], not \[65, 32\]"),
        ({"num_hidden_layers": 3}, "model.layers.2.*is missing"),
        ({"num_hidden_layers": 1}, "model.layers.1.*is unknown"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "scaled as 'yarn'"),
        ({"bos_token_id": None, "eos_token_id": None}, "neither a begin nor an end token"),
        ({"eos_token_id": "</s>"}, "eos_token_id must be a whole number, found '</s>'"),
    ):
        write_huggingface(tmp_path, weights, **changes)
        refused(words)
    write_huggingface(tmp_path, random_weights(200), vocab_size=200)
    refused("the tokenizer has a token with the number 289, and the model has only 200 tokens")
    write_huggingface(tmp_path, weights)
    infinite = load_file(tmp_path / "model.safetensors")
    infinite["model.norm.weight"][3] = torch.inf
    save_file(infinite, tmp_path / "model.safetensors")
    refused("model.norm.weight holds numbers that are not finite")
    write_huggingface(tmp_path, weights)
    (tmp_path / "tokenizer.json").unlink()
    refused("tokenizer.json is missing")
    (tmp_path / "model.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes()[:1000])
    refused("corrupted or truncated")
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    refused("model.safetensors is missing .a pickle")
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../x.safetensors"}}')
    refused("its file ../x.safetensors is missing")


def test_odd_files_are_refused(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(words: str, path: Path = tiny) -> None:
        with pytest.raises(ValueError, match=words) as raised:
            unnoise.load(path)
        assert "\n" not in str(raised.value)

    whole, tokenizer = tiny.read_bytes(), tiny.with_name("tokenizer.bin")
    tiny.write_bytes(whole[:-4])
    refused("truncated: its header asks for")
    assert main(["score", "a", "--model", str(tiny)]) == 2 and "truncated" in capsys.readouterr().err
    for content, words in (
        (b"PK\3\4" + whole, "is a pickle"),
        (b"short", "it has no header"),
        (struct.pack("<I", 0x616B3432) + whole, "export it with --version 0"),
        (struct.pack("<i", -5) + whole[4:], "its width is -5"),
        (whole[:12] + struct.pack("<i", 5) + whole[16:], "32 features, 5 and 2 heads"),
        (
            whole[:28] + np.array([np.nan], "<f4").tobytes() + whole[32:],
            "token_embedding_table holds numbers that are not finite",
        ),
    ):
        tiny.write_bytes(content)
        refused(words)
    tiny.write_bytes(whole)
    kept = tokenizer.read_bytes()
    for content, words in ((kept[:-3], "it is truncated"), (kept + b"0", "it has more than the"), (kept[:20], "damaged")):
        tokenizer.write_bytes(content)
        refused(words)
    tokenizer.unlink()
    refused("tokenizer must lie next to the weights")
    other = tiny.with_name("weights.onnx")
    other.write_bytes(b"anything")
    refused("there is no model in .*weights.onnx: give the folder of one, a .gguf file", other)
    with pytest.raises(ValueError, match="the tokenizer codec comes with a model"):
        unnoise.codec("tokenizer")


def test_odd_gguf_files_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="the eval extra is not installed")
    path = tmp_path / "tiny.gguf"
    weights = random_weights(VOCAB)
    write_gguf(path, weights, pre="unheard-of")
    with pytest.raises(ValueError, match="its pre-tokenizer 'unheard-of' is unknown"):
        unnoise.load(path)
    write_gguf(path, {name: weight for name, weight in weights.items() if "layers.1.mlp.up" not in name})
    with pytest.raises(ValueError, match=r"the tensor blk.1.ffn_up.weight is missing"):
        unnoise.load(path)
    for kept in (200, 5000, path.stat().st_size - 100):
        path.write_bytes(path.read_bytes()[:kept])
        with pytest.raises(ValueError, match="corrupted or truncated") as raised:
            unnoise.load(path)
        assert "\n" not in str(raised.value)
        write_gguf(path, weights)

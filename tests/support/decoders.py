"""A tiny decoder with random weights, written in each format that is read, and its forward pass in plain words."""

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import pre_tokenizers
from torch import Tensor
from torch.nn import functional as F

from unnoise.data.tokenizer import Bpe

WIDTH, HIDDEN, DEPTH, HEADS, KV_HEADS, LENGTH = 32, 64, 2, 4, 2, 40
SIZE = WIDTH // HEADS
EPS = 1e-5
LAYER = {
    "input_layernorm": (WIDTH,),
    "self_attn.q_proj": (WIDTH, WIDTH),
    "self_attn.k_proj": (KV_HEADS * SIZE, WIDTH),
    "self_attn.v_proj": (KV_HEADS * SIZE, WIDTH),
    "self_attn.o_proj": (WIDTH, WIDTH),
    "post_attention_layernorm": (WIDTH,),
    "mlp.gate_proj": (HIDDEN, WIDTH),
    "mlp.down_proj": (WIDTH, HIDDEN),
    "mlp.up_proj": (HIDDEN, WIDTH),
}
GGUF_NAMES = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_down", "ffn_up"]
GGUF = dict(zip(LAYER, GGUF_NAMES, strict=True))
DESCRIBED = {
    "model_type": "llama",
    "hidden_size": WIDTH,
    "intermediate_size": HIDDEN,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "max_position_embeddings": LENGTH,
    "rms_norm_eps": EPS,
    "rope_theta": 10000.0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VOCAB, MASK = 320, 317
TEXTS = ["Once upon a time, there was a cat.", "The cat sat on a mat, and then a dog sat there."] * 5


def random_weights(vocab: int, tied: bool = False) -> dict[str, Tensor]:
    """By 🤗 names, with features of queries and keys in halves."""
    generator = torch.Generator().manual_seed(0)
    shapes = {"model.embed_tokens.weight": (vocab, WIDTH), "model.norm.weight": (WIDTH,)}
    shapes |= {} if tied else {"lm_head.weight": (vocab, WIDTH)}
    shapes |= {f"model.layers.{i}.{name}.weight": shape for i in range(DEPTH) for name, shape in LAYER.items()}
    return {
        name: torch.randn(shape, generator=generator) * (0.3 if len(shape) == 2 else 0.1) + (len(shape) == 1)
        for name, shape in shapes.items()
    }


def forward(weights: dict[str, Tensor], ids: list[int], eps: float = EPS) -> Tensor:
    """Compute the logits of a text in float64, with complex numbers for the rotary positions: [L, K]."""
    weights = {name: weight.double() for name, weight in weights.items()}
    frequency = (1 / 10_000.0 ** (torch.arange(0, SIZE, 2) / SIZE)).double()  # which everybody rounds to float32
    angle = torch.arange(len(ids))[:, None] * frequency
    turn = torch.polar(torch.ones_like(angle), angle)

    def normed(x: Tensor, name: str) -> Tensor:
        return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weights[name]

    def turned(x: Tensor) -> Tensor:  # [L, H, D], the pair (i, i + D/2) being one complex number
        y = torch.complex(*x.chunk(2, -1)) * turn[:, None]
        return torch.cat([y.real, y.imag], -1)

    x = weights["model.embed_tokens.weight"][ids]
    for i in range(DEPTH):
        w = {name: weights[f"model.layers.{i}.{name}.weight"] for name in LAYER}
        h = normed(x, f"model.layers.{i}.input_layernorm.weight")
        q, k, v = ((h @ w[f"self_attn.{name}_proj"].T).view(len(ids), -1, SIZE) for name in "qkv")
        k, v = (part.repeat_interleave(HEADS // KV_HEADS, 1) for part in (turned(k), v))
        seen = torch.einsum("ihd,jhd->hij", turned(q), k) / SIZE**0.5
        seen = seen.masked_fill(torch.ones(len(ids), len(ids)).triu(1).bool(), -torch.inf).softmax(-1)
        x = x + torch.einsum("hij,jhd->ihd", seen, v).flatten(1) @ w["self_attn.o_proj"].T
        h = normed(x, f"model.layers.{i}.post_attention_layernorm.weight")
        x = x + (F.silu(h @ w["mlp.gate_proj"].T) * (h @ w["mlp.up_proj"].T)) @ w["mlp.down_proj"].T
    return normed(x, "model.norm.weight") @ weights.get("lm_head.weight", weights["model.embed_tokens.weight"]).T


def interleaved(rows: Tensor) -> Tensor:
    """Features of each head from halves into pairs, as llama2.c and GGUF keep them."""
    return rows.view(-1, 2, SIZE // 2, WIDTH).transpose(1, 2).reshape(rows.shape)


def write_huggingface(folder: Path, weights: dict[str, Tensor], **described: object) -> None:
    """Write a folder whose tokenizer has fewer tokens than the embedding has rows."""
    folder.mkdir(exist_ok=True)
    vocab = len(weights["model.embed_tokens.weight"])
    (folder / "config.json").write_text(json.dumps(DESCRIBED | {"vocab_size": vocab} | described))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    Bpe.train(TEXTS, 300).save(folder)


def write_llama2c(path: Path, weights: dict[str, Tensor], words: list[str]) -> None:
    """Write the weights and next to them a tokenizer: three control tokens, 256 bytes, then words by falling score."""
    vocab, tied = len(weights["model.embed_tokens.weight"]), "lm_head.weight" not in weights
    assert vocab == 259 + len(words)
    order = ["model.embed_tokens.weight"]
    order += [f"model.layers.{i}.{name}.weight" for name in LAYER for i in range(DEPTH)]
    parts = [interleaved(weights[name]) if "q_proj" in name or "k_proj" in name else weights[name] for name in order]
    parts += [weights["model.norm.weight"], torch.zeros(2, LENGTH, SIZE // 2)]
    parts += [] if tied else [weights["lm_head.weight"]]
    header = struct.pack("<7i", WIDTH, HIDDEN, DEPTH, HEADS, KV_HEADS, vocab if tied else -vocab, LENGTH)
    path.write_bytes(header + b"".join(part.numpy().astype("<f4").tobytes() for part in parts))
    tokens = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{byte:02X}>" for byte in range(256)), *words]
    content = [struct.pack("<fi", float(-i), len(raw)) + raw for i, raw in enumerate(token.encode() for token in tokens)]
    path.with_name("tokenizer.bin").write_bytes(struct.pack("<i", 27) + b"".join(content))


def write_gguf(path: Path, weights: dict[str, Tensor], pre: str = "smollm", quantized: bool = False) -> None:
    """Write the weights in llama.cpp's layout, with the tokens of a byte-level BPE."""
    import gguf

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(LENGTH)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(DEPTH)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(EPS)
    writer.add_rope_freq_base(10000.0)
    tokenizer = Bpe.train(TEXTS, 300, end=True).tokenizer
    described = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(described["vocab"], key=described["vocab"].get)
    vocab = len(weights["model.embed_tokens.weight"])
    tokens += [f"<unused{i}>" for i in range(vocab - len(tokens))]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges([merge if isinstance(merge, str) else " ".join(merge) for merge in described["merges"]])
    writer.add_eos_token_id(tokens.index("<|endoftext|>"))
    names = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
    names |= {f"model.layers.{i}.{a}.weight": f"blk.{i}.{b}.weight" for i in range(DEPTH) for a, b in GGUF.items()}
    names |= {"lm_head.weight": "output.weight"}
    for name, tensor in weights.items():
        kept = (interleaved(tensor) if "q_proj" in name or "k_proj" in name else tensor).numpy().astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q8_0
        if quantized and kept.ndim == 2:
            writer.add_tensor(names[name], gguf.quants.quantize(kept, kind), raw_dtype=kind)
        else:
            writer.add_tensor(names[name], kept)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


DREAM = {"model_type": "Dream", "mask_token_id": MASK, "bos_token_id": 1, "eos_token_id": 2}


def biased(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """With biases of queries, keys and values."""
    generator = torch.Generator().manual_seed(1)
    sizes = {name: len(weight) for name, weight in weights.items() if name.endswith(("q_proj.weight", "k_proj.weight"))}
    sizes |= {name.replace("k_proj", "v_proj"): size for name, size in sizes.items() if "k_proj" in name}
    return weights | {
        name.replace(".weight", ".bias"): torch.randn(size, generator=generator) * 0.3 for name, size in sizes.items()
    }


def write_llada(folder: Path, weights: dict[str, Tensor], **changes: object) -> None:
    """Write the same tensors under LLaDA's names."""
    layer = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ff_norm", "self_attn.o_proj": "attn_out"}
    layer |= {"mlp.gate_proj": "ff_proj", "mlp.down_proj": "ff_out", "self_attn.": "", "mlp.": ""}
    top = {"model.embed_tokens": "model.transformer.wte", "model.norm": "model.transformer.ln_f"}
    top |= {"lm_head": "model.transformer.ff_out", "model.layers": "model.transformer.blocks"}
    renamed = {}
    for name, weight in weights.items():
        for old, new in (top | layer).items():
            name = name.replace(old, new)  # noqa: PLW2901
        renamed[name] = weight
    described = {"model_type": "llada", "d_model": 32, "n_heads": 4, "n_kv_heads": 2, "n_layers": 2, "mlp_hidden_size": 64}
    described |= {"vocab_size": VOCAB, "embedding_size": VOCAB, "max_sequence_length": 40, "mask_token_id": MASK}
    described |= {"rope_theta": 10000.0, "rms_norm_eps": 1e-5, "eos_token_id": 2, "rope": True, "layer_norm_type": "rms"}
    folder.mkdir(exist_ok=True)
    save_file(renamed, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(described | changes))


def write_md4(folder: Path, **changes: object) -> None:
    """Write a tiny MD4 with random weights."""
    generator = np.random.default_rng(0)
    shapes = {"CondEmbedding_0/dense0": (4, 16), "CondEmbedding_0/Dense_0": (16, 4)}
    shapes |= {"Transformer_0/Dense_0": (4, 16), "Transformer_0/TransformerBlock_0/Dense_0": (4, 48)}
    bare = {f"attention/{name}": (8, 8) for name in ("wq", "wk", "wv", "wo")}
    bare |= {"feed_forward/w1": (8, 12), "feed_forward/w3": (8, 12), "feed_forward/w2": (12, 8)}
    arrays = {"Transformer_0/Embed_0/embedding": (28, 8), "Transformer_0/Dense_1/kernel": (8, 27)}
    arrays |= {f"{name}/kernel": shape for name, shape in shapes.items()} | {
        f"{name}/bias": shape[1:] for name, shape in shapes.items()
    }
    arrays |= {f"Transformer_0/TransformerBlock_0/{name}/kernel": shape for name, shape in bare.items()}
    folder.mkdir(exist_ok=True)
    drawn = {f"classifier/{name}": generator.normal(size=shape).astype(np.float32) for name, shape in arrays.items()}
    np.savez(folder / "params.npz", **drawn)
    described = {"model_type": "md4", "vocab_size": 27, "feature_dim": 4, "num_heads": 2, "n_layers": 1, "data_shape": [16]}
    described |= {"noise_schedule": "poly3", "outside_embed": False, "mlp_type": "glu", "cond_type": "adaln_zero"}
    described |= {"time_features": "t", "task_type": "text", "classes": -1, "dataset": "text8"}
    (folder / "config.json").write_text(json.dumps(described | changes))


GPT2 = Path(__file__).parents[1] / "fixtures" / "parity" / "gpt2"


def write_gpt2(folder: Path, **changes: object) -> None:
    """Write the GPT-2 of the fixtures, with a tokenizer in GPT-2's two files: the 256 bytes, then the end token."""
    folder.mkdir(exist_ok=True)
    shutil.copyfile(GPT2 / "model.safetensors", folder / "model.safetensors")
    described = json.loads((GPT2 / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(described | changes))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {symbol: number for number, symbol in enumerate([*alphabet, "<|endoftext|>"])}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    (folder / "merges.txt").write_text("#version: 0.2\n")

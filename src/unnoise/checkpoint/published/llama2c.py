"""Models of llama2.c: NAME.bin with float32 weights, and tokenizer.bin next to it.

NAME.bin starts with seven integers (width, hidden, layers, heads, kv_heads, tokens, length; the number of tokens is negative if
the head is not tied), followed by the tensors, each for all layers. tokenizer.bin starts with the length of the longest token,
followed by the score, length and bytes of each token; tokens 3 to 258 are single bytes, however they are spelled. Texts are
separated by the begin token, 1, which therefore also ends them.
"""

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from unnoise.checkpoint.published.decoder import Names, llama_weights, with_start_row
from unnoise.checkpoint.published.gguf_file import SPACE, add_control_tokens, sentencepiece
from unnoise.checkpoint.published.reader import Published
from unnoise.data.tokenizer import PretrainedTokenizer
from unnoise.files import read_bytes

HEADER = struct.Struct("<7i")
NEWER = 0x616B3432  # first bytes of later versions of the format
TOKENIZER = "tokenizer.bin"
MAX_TOKENIZER_BYTES = 64 * 2**20
CONTROL = ("<unk>", "<s>", "</s>")  # tokens 0, 1, 2
FIRST = (*CONTROL, *(f"<0x{byte:02X}>" for byte in range(256)))
BEGIN = 1
BASE, EPS = 10_000.0, 1e-5  # as in run.c
LLAMA2C_NAMES = Names(
    embed="token_embedding_table",
    head="wcls",
    norm="rms_final_weight",
    attention_norm="rms_att_weight.{}",
    q="wq.{}",
    k="wk.{}",
    v="wv.{}",
    out="wo.{}",
    mlp_norm="rms_ffn_weight.{}",
    gate="w1.{}",
    up="w3.{}",
    down="w2.{}",
    interleaved=True,
)


def read_llama2c(path: Path) -> Published:
    """Return the model in a .bin file, for the method `ar`."""
    config = _read_header(path)
    layout = _layout(config)
    size = HEADER.size + 4 * sum(math.prod(shape) for _, shape in layout)
    if path.stat().st_size != size:
        raise ValueError(
            f"it is not a file of llama2.c, or cut short: its header asks for {size:,} bytes, found {path.stat().st_size:,}"
        )
    values = torch.from_numpy(np.fromfile(path, "<f4", offset=HEADER.size))
    weights = llama_weights(_tensors(values, layout, config["depth"]), LLAMA2C_NAMES, config)
    vocab = config["outputs"]
    return Published(
        family="llama2.c",
        method="ar",
        network="llama",
        config=config,
        codec=PretrainedTokenizer(_read_tokenizer(path.with_name(TOKENIZER), vocab), vocab, BEGIN),
        length=config["length"],
        weights=lambda: with_start_row(weights, BEGIN),
    )


def _read_header(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        start = file.read(HEADER.size)
    if start[:2] == b"PK" or start[:1] == b"\x80":
        raise ValueError("it is a pickle, which unnoise does not open; convert it to safetensors")
    if len(start) < HEADER.size:
        raise ValueError("it is not a file of llama2.c, or cut short: it has no header")
    if struct.unpack_from("<I", start)[0] == NEWER:
        raise ValueError("it has a later format of llama2.c: export it with --version 0")
    width, hidden, depth, heads, kv_heads, vocab, length = HEADER.unpack(start)
    sizes = {"width": width, "hidden": hidden, "depth": depth, "heads": heads, "kv_heads": kv_heads, "length": length}
    for name, value in (sizes | {"tokens": abs(vocab)}).items():
        if not 1 <= value <= 2**20:
            raise ValueError(f"it is not a file of llama2.c, or damaged: its {name} is {value}")
    if width % heads or heads % kv_heads or (width // heads) % 2:
        raise ValueError(f"it is not a file of llama2.c, or damaged: {width} features, {heads} and {kv_heads} heads")
    return sizes | {
        "inputs": abs(vocab) + 1,
        "outputs": abs(vocab),
        "head_width": width // heads,
        "causal": True,
        "rotary_base": BASE,
        "norm_eps": EPS,
        "qk_norm": False,
        "qkv_bias": False,
        "tied": vocab > 0,
    }


def _layout(config: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Return name and shape of each tensor in the order of the file, with {} in the name if there is one for each layer."""
    width, hidden, depth, size = (config[name] for name in ("width", "hidden", "depth", "head_width"))
    keys = config["kv_heads"] * size
    angles = (config["length"], size // 2)
    return [
        (LLAMA2C_NAMES.embed, (config["outputs"], width)),
        (LLAMA2C_NAMES.attention_norm, (depth, width)),
        (LLAMA2C_NAMES.q, (depth, width, width)),
        (LLAMA2C_NAMES.k, (depth, keys, width)),
        (LLAMA2C_NAMES.v, (depth, keys, width)),
        (LLAMA2C_NAMES.out, (depth, width, width)),
        (LLAMA2C_NAMES.mlp_norm, (depth, width)),
        (LLAMA2C_NAMES.gate, (depth, hidden, width)),
        (LLAMA2C_NAMES.down, (depth, width, hidden)),
        (LLAMA2C_NAMES.up, (depth, hidden, width)),
        (LLAMA2C_NAMES.norm, (width,)),
        ("", angles),  # cosines and sines of the rotary positions
        ("", angles),
        *([] if config["tied"] else [(LLAMA2C_NAMES.head, (config["outputs"], width))]),
    ]


def _tensors(values: Tensor, layout: list[tuple[str, tuple[int, ...]]], depth: int) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    parts = values.split([math.prod(shape) for _, shape in layout])
    for (name, shape), part in zip(layout, parts, strict=True):
        whole = part.view(shape)
        if "{}" in name:
            found |= {name.format(layer): whole[layer] for layer in range(depth)}
        elif name:
            found[name] = whole
    return found


def _read_tokenizer(path: Path, vocab: int) -> Tokenizer:
    if not path.exists():
        raise ValueError(f"{path} is missing: llama2.c's tokenizer must lie next to the weights")
    content = read_bytes(path, MAX_TOKENIZER_BYTES, "tokenizer")
    tokens, scores, place = [], [], 4
    try:
        for _ in range(vocab):
            score, length = struct.unpack_from("<fi", content, place)
            place += 8 + length
            if length < 0 or place > len(content):
                raise ValueError("it is cut short")
            tokens.append(content[place - length : place].decode().replace(" ", SPACE))
            scores.append(score)
        if place != len(content):
            raise ValueError(f"it has more than the {vocab:,} tokens of the model")
        if vocab < len(FIRST):
            raise ValueError(f"it has {vocab} tokens, fewer than the {len(FIRST)} that every tokenizer has")
        tokens[: len(FIRST)] = FIRST
        tokenizer = sentencepiece(tokens, scores, CONTROL[0], set(CONTROL), prefix=True)
    except (struct.error, ValueError) as error:
        raise ValueError(f"{path.name} is not a tokenizer of llama2.c for this model, or damaged: {error}") from error
    add_control_tokens(tokenizer, CONTROL)
    return tokenizer

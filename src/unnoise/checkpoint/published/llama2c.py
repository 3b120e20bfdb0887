"""Models of llama2.c: NAME.bin with its weights in float32, and tokenizer.bin beside it.

NAME.bin is seven whole numbers (width, hidden, layers, heads, kv_heads, tokens, length; the number of tokens is negative if the
head is not tied), then the tensors one after the other, each for all layers. tokenizer.bin is the length of the longest token,
then for each token its score, its length and its bytes; tokens 3 to 258 are single bytes, however they are written there. Texts
are divided by the begin token, 1, which so is their end too.
"""

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from unnoise.checkpoint.published.decoder import Decoder, Names, Tensors, our_weights
from unnoise.checkpoint.published.vocabulary import SPACE, add_control_tokens, sentencepiece
from unnoise.data.tokenizer import PretrainedTokenizer
from unnoise.files import read_bytes

HEADER = struct.Struct("<7i")
NEWER = 0x616B3432  # with which later versions of the format begin
TOKENIZER = "tokenizer.bin"
LARGEST_TOKENIZER = 64 * 2**20  # bytes
CONTROL = ("<unk>", "<s>", "</s>")  # tokens 0, 1, 2
FIRST = (*CONTROL, *(f"<0x{byte:02X}>" for byte in range(256)))
BEGIN = 1
BASE, EPS = 10_000.0, 1e-5  # which run.c has
NAMES = Names(
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


def read_llama2c(path: Path) -> Decoder:
    """The model in a file, or ValueError."""
    config = _read_header(path)
    layout = _layout(config)
    numbers = sum(math.prod(shape) for _, shape in layout)
    if path.stat().st_size != HEADER.size + 4 * numbers:
        raise ValueError(
            f"{path} is no file of llama2.c, or cut short: its header asks for {HEADER.size + 4 * numbers:,} bytes, "
            f"found {path.stat().st_size:,}"
        )
    values = torch.from_numpy(np.fromfile(path, "<f4", offset=HEADER.size))
    try:
        weights = our_weights(Tensors(_tensors(values, layout, config["depth"])), NAMES, config)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    tokenizer = _read_tokenizer(path.with_name(TOKENIZER), config["outputs"])
    return Decoder(config, weights, PretrainedTokenizer(tokenizer, config["outputs"], BEGIN), BEGIN)


def _read_header(path: Path) -> dict[str, Any]:
    with open(path, "rb") as file:
        start = file.read(HEADER.size)
    if start[:2] == b"PK" or start[:1] == b"\x80":
        raise ValueError(f"{path} is a pickle, which unnoise does not open; convert it to safetensors")
    if len(start) < HEADER.size:
        raise ValueError(f"{path} is no file of llama2.c, or cut short: it has no header")
    if struct.unpack_from("<I", start)[0] == NEWER:
        raise ValueError(f"{path} has a later format of llama2.c: export it with --version 0")
    width, hidden, depth, heads, kv_heads, vocab, length = HEADER.unpack(start)
    sizes = {"width": width, "hidden": hidden, "depth": depth, "heads": heads, "kv_heads": kv_heads, "length": length}
    for name, value in (sizes | {"tokens": abs(vocab)}).items():
        if not 1 <= value <= 2**20:
            raise ValueError(f"{path} is no file of llama2.c, or damaged: its {name} is {value}")
    if width % heads or heads % kv_heads or (width // heads) % 2:
        raise ValueError(f"{path} is no file of llama2.c, or damaged: {width} features, {heads} and {kv_heads} heads")
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
    """The tensors in their order: name and shape, with {} in the name where there is one for each layer."""
    width, hidden, depth, size = (config[name] for name in ("width", "hidden", "depth", "head_width"))
    keys = config["kv_heads"] * size
    angles = (config["length"], size // 2)
    return [
        (NAMES.embed, (config["outputs"], width)),
        (NAMES.attention_norm, (depth, width)),
        (NAMES.q, (depth, width, width)),
        (NAMES.k, (depth, keys, width)),
        (NAMES.v, (depth, keys, width)),
        (NAMES.out, (depth, width, width)),
        (NAMES.mlp_norm, (depth, width)),
        (NAMES.gate, (depth, hidden, width)),
        (NAMES.down, (depth, width, hidden)),
        (NAMES.up, (depth, hidden, width)),
        (NAMES.norm, (width,)),
        ("", angles),  # cosines and sines of the rotary positions, which are computed
        ("", angles),
        *([] if config["tied"] else [(NAMES.head, (config["outputs"], width))]),
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
        raise ValueError(f"{path} is missing: llama2.c's tokenizer must lie beside the weights")
    content = read_bytes(path, LARGEST_TOKENIZER, "tokenizer")
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
            raise ValueError(f"it has {vocab} tokens, fewer than the {len(FIRST)} that every one has")
        tokens[: len(FIRST)] = FIRST
        tokenizer = sentencepiece(tokens, scores, CONTROL[0], set(CONTROL), prefix=True)
    except (struct.error, ValueError) as error:
        raise ValueError(f"{path} is no tokenizer of llama2.c for this model, or damaged: {error}") from error
    add_control_tokens(tokenizer, CONTROL)
    return tokenizer

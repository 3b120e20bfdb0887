"""Weights of the network ddit, which SEDD, MDLM, BD3-LM, Duo, UDLM, GIDD and Flex-MDM store under the same tensor names.

| their files | our network |
|---|---|
| vocab_embed.embedding | embed.weight |
| sigma_map.mlp.{0,2} | time_embed.{0,2} |
| cond_map.embedding_table | label |
| blocks.i.{norm1, attn_qkv, attn_out, norm2} | blocks.i.{attention_norm, qkv, out, norm} |
| blocks.i.{mlp.0, mlp.2, adaLN_modulation} | blocks.i.{up, down, adaln} |
| output_layer.{norm_final, linear, adaLN_modulation} | {norm, head, adaln} |
| len_pred.{norm, adaLN, proj1, proj2} | gap_head.{norm, adaln, up, head} |

The names may have the prefixes `backbone.`, `model.`, `module.` (DistributedDataParallel) and `_orig_mod.` (torch.compile).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unnoise.checkpoint.published.reader import Choices, Published
from unnoise.checkpoint.published.tensor_files import Tensors
from unnoise.checkpoint.published.tokenizer_files import MASK, codec_for, find_tokenizer
from unnoise.method_table import method as method_named
from unnoise.network.ddit import WAVES, frequencies

NEVER = -1e6  # a logit, as in MDLM's code
PREFIXES = ("module.", "_orig_mod.", "model.", "backbone.")
EMBEDDING, HEAD = "vocab_embed.embedding", "output_layer.linear.weight"
CONDITION, HIDDEN = "sigma_map.mlp.2.weight", "blocks.0.mlp.0.weight"
LABELS = "cond_map.embedding_table.weight"
INV_FREQ, COS, SIN = "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"
BUFFERS = (INV_FREQ, COS, SIN, "sampling_eps_min", "sampling_eps_max")


@dataclass(frozen=True)
class Layout:
    """A checkpoint as its configuration describes it.

    layout: name of the layout.
    method: our method, with its settings.
    length, heads: maximum sequence length and number of heads, which the tensors do not show.
    sizes: sizes to compare with the tensors, by our names (vocab, width, depth, cond_width).
    special: number of embedding rows after the tokens of texts, for a mask and padding.
    tokens: number of text tokens, if the configuration states it.
    rounded: multiple to which the number of embedding rows may be rounded up.
    time_fields: fields of our network that describe its time input.
    labels: number of classes.
    gaps: whether the network has a head for gaps.
    swapped: whether the last two rows are exchanged.
    own_mask: whether a mask in the tokenizer is the model's mask.
    notes: facts to save with the model.
    """

    layout: str
    method: str
    length: int
    heads: int
    sizes: Mapping[str, int]
    special: int = 0
    tokens: int | None = None
    rounded: int = 1
    time_fields: Mapping[str, Any] = field(default_factory=dict)
    labels: int = 0
    gaps: bool = False
    swapped: bool = False
    own_mask: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)


def bare_names(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors without the prefixes of their names; raise ValueError if two names become equal."""
    named: dict[str, Tensor] = {}
    for name, tensor in found.items():
        bare = name
        while bare.startswith(PREFIXES):
            bare = bare[bare.index(".") + 1 :]
        if bare in named:
            raise ValueError(f"the file has two tensors named {bare}")
        named[bare] = tensor
    return named


def names(config: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Yield our name, their name and the shape of every weight, in the order of their `parameters()`."""
    width, hidden, condition, vocab = (config[name] for name in ("width", "hidden", "cond_width", "head_rows"))
    yield "embed.weight", EMBEDDING, (config["inputs"], width)
    yield "time_embed.0.weight", "sigma_map.mlp.0.weight", (condition, WAVES)
    yield "time_embed.0.bias", "sigma_map.mlp.0.bias", (condition,)
    yield "time_embed.2.weight", CONDITION, (condition, condition)
    yield "time_embed.2.bias", "sigma_map.mlp.2.bias", (condition,)
    if config["labels"]:
        yield "label.weight", LABELS, (config["labels"] + 1, condition)
    for block in (f"blocks.{layer}." for layer in range(config["depth"])):
        yield block + "attention_norm.weight", block + "norm1.weight", (width,)
        yield block + "qkv.weight", block + "attn_qkv.weight", (3 * width, width)
        yield block + "out.weight", block + "attn_out.weight", (width, width)
        yield block + "norm.weight", block + "norm2.weight", (width,)
        yield block + "up.weight", block + "mlp.0.weight", (hidden, width)
        yield block + "up.bias", block + "mlp.0.bias", (hidden,)
        yield block + "down.weight", block + "mlp.2.weight", (width, hidden)
        yield block + "down.bias", block + "mlp.2.bias", (width,)
        yield block + "adaln.weight", block + "adaLN_modulation.weight", (6 * width, condition)
        yield block + "adaln.bias", block + "adaLN_modulation.bias", (6 * width,)
    yield "norm.weight", "output_layer.norm_final.weight", (width,)
    yield "head.weight", HEAD, (vocab, width)
    yield "head.bias", "output_layer.linear.bias", (vocab,)
    yield "adaln.weight", "output_layer.adaLN_modulation.weight", (2 * width, condition)
    yield "adaln.bias", "output_layer.adaLN_modulation.bias", (2 * width,)
    if config["gaps"]:
        yield "gap_head.adaln.weight", "len_pred.adaLN.weight", (2 * width, condition)
        yield "gap_head.adaln.bias", "len_pred.adaLN.bias", (2 * width,)
        yield "gap_head.norm.weight", "len_pred.norm.weight", (width,)
        yield "gap_head.up.weight", "len_pred.proj1.weight", (width, width)
        yield "gap_head.up.bias", "len_pred.proj1.bias", (width,)
        yield "gap_head.head.weight", "len_pred.proj2.weight", (1, width)
        yield "gap_head.head.bias", "len_pred.proj2.bias", (1,)


def read_ddit(layout: Layout, found: Mapping[str, Tensor], folder: Path, choices: Choices) -> Published:
    """Build the published model that a layout describes from its tensors and the tokenizer in a folder."""
    tensors = bare_names(found)
    sizes = tensor_sizes(tensors, layout)
    if layout.labels and len(tensors.get(LABELS, ())) != layout.labels + 1:
        raise ValueError(f"the tensor {LABELS} must have {layout.labels + 1} rows, one for each class and one for no class")
    tokenizer = find_tokenizer(folder)
    named_mask = None if tokenizer is None else tokenizer.token_to_id(MASK)
    rows = sizes["vocab"]
    mask = inner_mask(layout, rows, named_mask, choices.mask_token)
    vocab = rows - (special_rows(layout, rows, choices.mask_token) if mask is None else 0)
    if vocab < rows and named_mask is not None and named_mask < vocab:
        raise ValueError(f"its tokenizer has {MASK} as token {named_mask}, which must come after the {vocab:,} tokens of texts")
    method_name = choices.method or layout.method
    method = method_named(method_name)
    needed = method.parameterization.network_config(method.process(vocab), layout.length, method.time_free)
    config = {
        **{name: sizes[name] for name in ("width", "depth", "hidden", "cond_width")},
        **{"heads": layout.heads, "head_rows": rows, "labels": layout.labels, "gaps": layout.gaps},
        **{name: value for name, value in needed.items() if name in ("inputs", "outputs", "length", "time")},
        **layout.time_fields,
    }
    return Published(
        family=layout.layout,
        method=method_name,
        network="ddit",
        config=config,
        codec=codec_for(tokenizer, vocab, drop_added=True),
        length=layout.length,
        weights=lambda: ddit_weights(layout, config, tensors, mask),
        notes=layout.notes if mask is None else {**layout.notes, "mask_token": mask},
        labels=tuple(str(i) for i in range(layout.labels)),
    )


def inner_mask(layout: Layout, rows: int, named: int | None, chosen: int | None) -> int | None:
    """Return the mask if it is a token of the tokenizer, as BERT's [MASK] is; None if it is the row after all tokens.

    named: number of [MASK] in the tokenizer.
    chosen: number of the mask given by the user.
    """
    if not layout.own_mask:
        return None
    if chosen is not None and not 0 <= chosen < rows:
        raise ValueError(f"its mask token must be one of its rows 0…{rows - 1}, found {chosen}")
    mask = named if chosen is None else chosen
    return mask if mask is not None and mask < rows - 1 else None


def special_rows(layout: Layout, rows: int, mask: int | None) -> int:
    """Return the number of rows that are not tokens of texts. mask: first of them, if the user gave it."""
    if mask is not None and (layout.special == 0 or layout.gaps):
        raise ValueError(f"no mask token can be chosen for {layout.layout}")
    tokens = next(one for one in (mask, layout.tokens, rows - layout.special) if one is not None)
    if not 1 <= tokens <= rows - layout.special:
        raise ValueError(f"its embedding has {rows} rows, too few for {tokens} tokens of texts")
    return rows - tokens


def ddit_weights(
    layout: Layout, config: Mapping[str, Any], tensors: Mapping[str, Tensor], mask: int | None = None
) -> dict[str, Tensor]:
    """Return the tensors in float32 under our names.

    mask: the token that is the mask, if it is one of the K tokens. Our mask, state K, is then embedded as that token, and
    the token itself is never predicted: SUBS sets its logit to −10⁶, and here the bias of its row does.
    """
    left = Tensors(tensors)
    check_rotary(left.found, layout)
    stored = {**config, "inputs": config["head_rows"]}  # embedding rows in the file
    found = {ours: left.take(theirs, *shape).float().contiguous() for ours, theirs, shape in names(stored)}
    left.check_all_taken(f"the layout {layout.layout}")
    if layout.swapped:
        for name in ("embed.weight", "head.weight", "head.bias"):
            found[name] = torch.cat([found[name][:-2], found[name][-1:], found[name][-2:-1]])
    if mask is not None:
        bias = found["head.bias"].clone()
        bias[mask] = NEVER
        embedding = found["embed.weight"]
        return found | {"embed.weight": torch.cat([embedding, embedding[mask : mask + 1]]), "head.bias": bias}
    return found | {"embed.weight": found["embed.weight"][: config["inputs"]]}


def tensor_sizes(tensors: Mapping[str, Tensor], layout: Layout) -> dict[str, int]:
    """Return the sizes of the tensors; raise ValueError if the configuration contradicts them."""
    for name in (EMBEDDING, CONDITION, HIDDEN):
        if name not in tensors:
            raise ValueError(f"the tensor {name} is missing")
        if tensors[name].dim() != 2 or not tensors[name].numel():
            raise ValueError(f"the tensor {name} has shape {list(tensors[name].shape)}, not that of a matrix")
    depth = 0
    while f"blocks.{depth}.attn_qkv.weight" in tensors:
        depth += 1
    vocab, width = tensors[EMBEDDING].shape
    found = {
        **{"vocab": vocab, "width": width, "depth": depth},
        **{"cond_width": len(tensors[CONDITION]), "hidden": len(tensors[HIDDEN])},
    }
    for name, value in layout.sizes.items():
        if found[name] != value and (name != "vocab" or found[name] != -(-value // layout.rounded) * layout.rounded):
            raise ValueError(f"its configuration says {name.replace('_', ' ')} {value}, and its tensors {found[name]}")
    if width % layout.heads or (width // layout.heads) % 2:
        raise ValueError(f"its width {width} must be an even multiple of its {layout.heads} heads")
    return found


def check_rotary(tensors: dict[str, Tensor], layout: Layout) -> None:
    """Remove the buffers for rotary positions and sampling; raise ValueError if the positions differ from ours."""
    head_width = tensors[EMBEDDING].shape[1] // layout.heads
    waves = frequencies(head_width, torch.device("cpu"))
    kept = {name: tensors.pop(name, None) for name in BUFFERS}
    expected = {INV_FREQ: waves, COS: waves.cos(), SIN: waves.sin()}
    for name, wanted in expected.items():
        buffer = kept[name]
        if buffer is None:
            continue
        if name != INV_FREQ:  # [1, positions, 3, 1, head width], compared at position 1 of the queries
            if buffer.dim() != 5 or buffer.shape[1] < 2 or buffer.shape[-1] != head_width or not buffer.numel():
                raise ValueError(f"the tensor {name} has shape {list(buffer.shape)}, which does not fit {layout.heads} heads")
            buffer = buffer[0, 1, 0, 0, : head_width // 2]
        if buffer.shape != wanted.shape or not torch.allclose(buffer.float(), wanted, rtol=1e-2, atol=1e-4):
            raise ValueError(f"its rotary positions ({name}) do not have base 10,000 for {layout.heads} heads")

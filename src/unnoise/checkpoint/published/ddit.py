"""What the layouts of SEDD, MDLM, BD3-LM, Duo, UDLM, GIDD and Flex-MDM have in common: one network, by one set of names.

| in their files | here (network/ddit.py) |
|---|---|
| vocab_embed.embedding | embed.weight |
| sigma_map.mlp.{0,2} | time_embed.{0,2} |
| cond_map.embedding_table | label |
| blocks.i.{norm1, attn_qkv, attn_out, norm2} | blocks.i.{attention_norm, qkv, out, norm} |
| blocks.i.{mlp.0, mlp.2, adaLN_modulation} | blocks.i.{up, down, adaln} |
| output_layer.{norm_final, linear, adaLN_modulation} | {norm, head, adaln} |
| len_pred.{norm, adaLN, proj1, proj2} | gap_head.{norm, adaln, up, head} |

before which stand `backbone.`, `model.`, `module.` (DistributedDataParallel) or `_orig_mod.` (torch.compile).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unnoise.checkpoint.published.beside import MASK, codec_beside, tokenizer_beside
from unnoise.checkpoint.published.fields import whole
from unnoise.checkpoint.published.numbers import check_numbers
from unnoise.checkpoint.published.reader import Choices, Published, Reader, of_type
from unnoise.checkpoint.published.tensor_files import folder_tensors
from unnoise.method_table import method as method_named
from unnoise.network.ddit import WAVES, frequencies

NEVER = -1e6  # a logit, as in MDLM's code
PREFIXES = ("module.", "_orig_mod.", "model.", "backbone.")
EMBEDDING, HEAD = "vocab_embed.embedding", "output_layer.linear.weight"
QKV, CONDITION, HIDDEN = "blocks.0.attn_qkv.weight", "sigma_map.mlp.2.weight", "blocks.0.mlp.0.weight"
LABELS = "cond_map.embedding_table.weight"
INV_FREQ, COS, SIN = "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached"
BUFFERS = (INV_FREQ, COS, SIN, "sampling_eps_min", "sampling_eps_max")
BLOCK = {
    "attention_norm.weight": "norm1.weight",
    "qkv.weight": "attn_qkv.weight",
    "out.weight": "attn_out.weight",
    "norm.weight": "norm2.weight",
    "up.weight": "mlp.0.weight",
    "up.bias": "mlp.0.bias",
    "down.weight": "mlp.2.weight",
    "down.bias": "mlp.2.bias",
    "adaln.weight": "adaLN_modulation.weight",
    "adaln.bias": "adaLN_modulation.bias",
}


@dataclass(frozen=True)
class Layout:
    """What a configuration says of a checkpoint.

    layout: its name. method: ours, with its options. length, heads: which no tensor tells. sizes: what the configuration says
    of sizes that the tensors tell too, by our names (vocab, width, depth, cond_width). special: how many rows of the embedding
    are behind the tokens of texts: a mask, padding. tokens: how many tokens of texts there are, where that is said otherwise.
    rounded: to a multiple of what rows may be rounded up. reads: fields of the network about time. labels: how many classes.
    gaps: whether there is a head for gaps. swapped: whether the last two rows are exchanged. own_mask: whether the mask is
    a token of the tokenizer, where that has one. notes: what is worth to be kept.
    """

    layout: str
    method: str
    length: int
    heads: int
    sizes: Mapping[str, int]
    special: int = 0
    tokens: int | None = None
    rounded: int = 1
    reads: Mapping[str, Any] = field(default_factory=dict)
    labels: int = 0
    gaps: bool = False
    swapped: bool = False
    own_mask: bool = False
    notes: Mapping[str, Any] = field(default_factory=dict)


def bare_names(found: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors without what stands before their names, or ValueError if two become one."""
    named: dict[str, Tensor] = {}
    for name, tensor in found.items():
        bare = name
        while bare.startswith(PREFIXES):
            bare = bare[bare.index(".") + 1 :]
        if bare in named:
            raise ValueError(f"the tensor {bare} is there twice")
        named[bare] = tensor
    return named


def names(config: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    """Our name, theirs and the shape of every weight of a network, in the order of their `parameters()`."""
    width, hidden, condition, vocab = (config[name] for name in ("width", "hidden", "cond_width", "head_rows"))
    yield "embed.weight", EMBEDDING, (config["inputs"], width)
    yield "time_embed.0.weight", "sigma_map.mlp.0.weight", (condition, WAVES)
    yield "time_embed.0.bias", "sigma_map.mlp.0.bias", (condition,)
    yield "time_embed.2.weight", CONDITION, (condition, condition)
    yield "time_embed.2.bias", "sigma_map.mlp.2.bias", (condition,)
    if config["labels"]:
        yield "label.weight", LABELS, (config["labels"] + 1, condition)
    shapes = {
        **{"attention_norm.weight": (width,), "qkv.weight": (3 * width, width), "out.weight": (width, width)},
        **{"norm.weight": (width,), "up.weight": (hidden, width), "up.bias": (hidden,)},
        **{"down.weight": (width, hidden), "down.bias": (width,)},
        **{"adaln.weight": (6 * width, condition), "adaln.bias": (6 * width,)},
    }
    for layer in range(config["depth"]):
        for ours, theirs in BLOCK.items():
            yield f"blocks.{layer}.{ours}", f"blocks.{layer}.{theirs}", shapes[ours]
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
    """The model of a layout from its tensors and the tokenizer beside them, or ValueError."""
    tensors = bare_names(found)
    sizes = tensor_sizes(tensors, layout)
    if layout.labels and len(tensors.get(LABELS, ())) != layout.labels + 1:
        raise ValueError(f"the tensor {LABELS} has not the rows of {layout.labels} classes and one more")
    rows, mask = sizes["vocab"], mask_inside(layout, sizes["vocab"], folder, choices.mask_token)
    special = special_rows(layout, rows, choices.mask_token) if mask is None else 0
    vocab = rows - special
    named = choices.method or layout.method
    method = method_named(named)
    needed = method.parameterization.network_config(method.process(vocab), layout.length, method.time_free)
    config = {
        **{name: sizes[name] for name in ("width", "depth", "hidden", "cond_width")},
        **{"heads": layout.heads, "head_rows": rows, "labels": layout.labels, "gaps": layout.gaps},
        **{name: value for name, value in needed.items() if name in ("inputs", "outputs", "length", "time")},
        **layout.reads,
    }
    codec = codec_beside(folder, vocab, bool(special))
    labels = tuple(str(i) for i in range(layout.labels))
    notes = layout.notes if mask is None else {**layout.notes, "mask_token": mask}
    return Published(
        *(layout.layout, named, "ddit", config, codec, layout.length),
        *(lambda: weights(layout, config, tensors, mask), "", notes, labels),
    )


def mask_inside(layout: Layout, rows: int, folder: Path, chosen: int | None) -> int | None:
    """The mask, where it is one of the tokens of the tokenizer, as BERT's [MASK] is, and not the row behind them."""
    if not layout.own_mask:
        return None
    if chosen is not None:
        if not 0 <= chosen < rows:
            raise ValueError(f"its mask token must be one of its rows 0…{rows - 1}, found {chosen}")
        return chosen if chosen < rows - 1 else None
    tokenizer = tokenizer_beside(folder)
    found = None if tokenizer is None else tokenizer.token_to_id(MASK)
    return found if found is not None and found < rows - 1 else None


def special_rows(layout: Layout, rows: int, mask: int | None) -> int:
    """How many of the rows are no tokens of texts, or ValueError; mask: a person's word on which is the first of them."""
    if mask is not None and (layout.special == 0 or layout.gaps):
        raise ValueError(f"no mask token can be chosen for {layout.layout}")
    tokens = next(one for one in (mask, layout.tokens, rows - layout.special) if one is not None)
    if not 1 <= tokens <= rows - layout.special:
        raise ValueError(f"its embedding has {rows} rows, and {tokens} of them would be tokens of texts, which cannot be")
    return rows - tokens


def weights(
    layout: Layout, config: Mapping[str, Any], tensors: Mapping[str, Tensor], mask: int | None = None
) -> dict[str, Tensor]:
    """The tensors by our names, or ValueError if one is missing, misshapen, not finite or too many.

    mask: the token that is the mask, where it is one of the K tokens. Then our mask, state K, is embedded as that token, and
    the token itself is never predicted: SUBS gives it the logit −10⁶, and so does the bias of its row.
    """
    left = dict(tensors)
    check_rotary(left, layout)
    stored = {**config, "inputs": config["head_rows"]}  # rows of the embedding in the file
    found = {ours: taken(left, theirs, shape) for ours, theirs, shape in names(stored)}
    if left:
        raise ValueError(f"the tensor {min(left)} is unknown to the layout {layout.layout}")
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
    """The sizes that the tensors tell, or ValueError where the configuration says otherwise."""
    for name in (EMBEDDING, CONDITION, HIDDEN):
        if name not in tensors:
            raise ValueError(f"the tensor {name} is missing")
        if tensors[name].dim() != 2 or not tensors[name].numel():
            raise ValueError(f"the tensor {name} has shape {list(tensors[name].shape)}, which is no matrix")
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
        raise ValueError(f"its width {width} is no even multiple of its {layout.heads} heads")
    return found


def taken(tensors: dict[str, Tensor], name: str, shape: tuple[int, ...]) -> Tensor:
    """A tensor as float32, out of those that are left; ValueError if it is missing, misshapen or not finite."""
    if name not in tensors:
        raise ValueError(f"the tensor {name} is missing")
    tensor = tensors.pop(name)
    if tuple(tensor.shape) != shape:
        raise ValueError(f"the tensor {name} has shape {list(tensor.shape)}, not {list(shape)}")
    check_numbers(name, tensor)
    return tensor.float().contiguous()  # the same memory-mapped tensor, if it is float32 already


def check_rotary(tensors: dict[str, Tensor], layout: Layout) -> None:
    """Take out what a file keeps of the rotary positions and of sampling; ValueError if they are other positions than ours."""
    head_width = tensors[EMBEDDING].shape[1] // layout.heads
    waves = frequencies(head_width, torch.device("cpu"))
    kept = {name: tensors.pop(name, None) for name in BUFFERS}
    expected = {INV_FREQ: waves, COS: waves.cos(), SIN: waves.sin()}
    for name, wanted in expected.items():
        buffer = kept[name]
        if buffer is None:
            continue
        if name != INV_FREQ:  # [1, positions, 3, 1, head width], of which the second position's queries are compared
            if buffer.dim() != 5 or buffer.shape[1] < 2 or buffer.shape[-1] != head_width or not buffer.numel():
                raise ValueError(
                    f"the tensor {name} has shape {list(buffer.shape)}, which are no positions of {layout.heads} heads"
                )
            buffer = buffer[0, 1, 0, 0, : head_width // 2]
        if buffer.shape != wanted.shape or not torch.allclose(buffer.float(), wanted, rtol=1e-2, atol=1e-4):
            raise ValueError(f"its rotary positions ({name}) are not those of base 10,000 for {layout.heads} heads")


# ---- configurations ------------------------------------------------------------------------------------------------------


def section(described: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """A part of a configuration, or ValueError."""
    value = described.get(name)
    if not isinstance(value, Mapping):
        raise ValueError(f"its configuration has no {name}")
    return value


HF_SIZES = {"vocab": "vocab_size", "width": "hidden_dim", "depth": "n_blocks", "cond_width": "cond_dim"}


def hf_sizes(described: Mapping[str, Any]) -> dict[str, int]:
    """The sizes that config.json of MDLM, BD3-LM, Duo and UDLM says."""
    return {ours: whole(described, theirs) for ours, theirs in HF_SIZES.items()}


def hydra_sizes(model: Mapping[str, Any]) -> dict[str, int]:
    """The sizes that the section `model` of a training configuration says."""
    return {"width": whole(model, "hidden_size"), "depth": whole(model, "n_blocks"), "cond_width": whole(model, "cond_dim")}


def ddit_reader(kind: str, layout: Callable[[Mapping[str, Any], Path], Layout]) -> Reader:
    """The reader of folders with this `model_type`, whose configuration says a layout."""
    return Reader(
        (kind,),
        of_type(kind),
        lambda folder, described, choices: read_ddit(layout(described, folder), folder_tensors(folder), folder, choices),
    )

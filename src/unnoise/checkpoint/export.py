"""Writing a model of ours, with the network ddit, in the layout of a paper's own code, which so can read it."""

import io
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save as packed_safetensors
from torch import Tensor

from unnoise.checkpoint.ours import CONFIG
from unnoise.checkpoint.published import bd3lm, duo, flexmdm, gidd, mdlm, sedd, udlm
from unnoise.checkpoint.published.beside import MASK, tokenizer_of_codec
from unnoise.checkpoint.published.ddit import COS, INV_FREQ, SIN, names
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.folder import WEIGHTS
from unnoise.checkpoint.published.tensor_files import PICKLE
from unnoise.data.bpe import FILE as TOKENIZER
from unnoise.files import write_atomically
from unnoise.keywords import parse_settings
from unnoise.method_table import method_options
from unnoise.network.base import config_of_network
from unnoise.network.ddit import Ddit, frequencies

if TYPE_CHECKING:
    from unnoise.model.parts import ModelParts

CHECKPOINT = "last.ckpt"


@dataclass(frozen=True)
class Target:
    """A layout that can be written.

    described: what its configuration says, or ValueError if the model is none of that kind. file: of the weights. prefix: what
    stands before the tensors' names. buffers: tensors besides the weights.
    """

    described: Callable[[Exported], dict[str, Any]]
    file: str
    prefix: str
    buffers: Callable[[Exported], dict[str, Tensor]]


def inverse_frequencies(model: Exported) -> dict[str, Tensor]:
    """Rotary positions as most layouts keep them."""
    return {INV_FREQ: frequencies(_head_width(model), torch.device("cpu"))}


def cached_rotations(model: Exported) -> dict[str, Tensor]:
    """Rotary positions as GIDD keeps them: [1, L, 3, 1, D], of which the values' part turns nothing."""
    angle = torch.arange(model.length)[:, None] * frequencies(_head_width(model), torch.device("cpu"))
    angle = torch.cat([angle, angle], -1)[None, :, None, None]
    return {
        COS: torch.cat([angle.cos(), angle.cos(), torch.ones_like(angle)], 2),
        SIN: torch.cat([angle.sin(), angle.sin(), torch.zeros_like(angle)], 2),
    }


def _head_width(model: Exported) -> int:
    return model.network["width"] // model.network["heads"]


TARGETS: dict[str, Target] = {
    "mdlm": Target(mdlm.described, WEIGHTS, "backbone.", inverse_frequencies),
    "sedd": Target(sedd.described, PICKLE, "", inverse_frequencies),
    "bd3lm": Target(bd3lm.described, WEIGHTS, "backbone.", inverse_frequencies),
    "udlm": Target(udlm.described, WEIGHTS, "backbone.", inverse_frequencies),
    "duo": Target(duo.described, WEIGHTS, "backbone.", inverse_frequencies),
    "gidd": Target(gidd.described, WEIGHTS, "", cached_rotations),
    "flexmdm": Target(flexmdm.described, CHECKPOINT, "model._orig_mod.", inverse_frequencies),
}


def export(model: "ModelParts", layout: str, folder: Path) -> Path:
    """Write config.json, the weights and the tokenizer into a folder: the file of the weights, or ValueError."""
    if layout not in TARGETS:
        raise ValueError(f"models are written in the layouts {', '.join(TARGETS)}, found {layout!r}")
    target = TARGETS[layout]
    network = model.network
    if not isinstance(network, Ddit):
        raise ValueError(
            f"only models with the network ddit are written in published layouts, and this one has {type(network).__name__}: "
            "train with --network ddit"
        )
    base, _, settings = model.method.name.partition(":")
    options = method_options(base) | parse_settings(base, settings, "method")
    exported = Exported(base, options, config_of_network(network), model.length, len(model.labels))
    described = target.described(exported)
    tokenizer = tokenizer_of_codec(model.codec)
    if tokenizer is not None and exported.rows > model.codec.vocab and tokenizer.token_to_id(MASK) is not None:
        raise ValueError(
            f"the tokenizer of this model has {MASK} as a token, which the layout {layout} would take for its mask"
        )
    tensors = their_tensors(network.state_dict(), exported, target)
    if layout == bd3lm.NAME:
        tensors |= {
            f"sampling_eps_{end}": torch.tensor(value) for end, value in zip(("min", "max"), bd3lm.SAMPLING, strict=True)
        }
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        write_atomically(folder / TOKENIZER, tokenizer.to_str(pretty=True).encode())
    write_atomically(folder / target.file, content(target.file, tensors, described))
    write_atomically(folder / CONFIG, (json.dumps(described, indent=2, sort_keys=True) + "\n").encode())
    return folder / target.file


def their_tensors(weights: Mapping[str, Tensor], model: Exported, target: Target) -> dict[str, Tensor]:
    """The tensors by their names. The output head gets a row for each row of the embedding: of zeros, where we have none."""
    stored = {**model.network, "head_rows": model.rows}
    found = {
        theirs: _with_rows(weights[ours].detach().cpu().float(), shape[0] if ours.startswith("head.") else None)
        for ours, theirs, shape in names(stored)
    }
    return {target.prefix + name: tensor.contiguous() for name, tensor in (found | target.buffers(model)).items()}


def _with_rows(tensor: Tensor, rows: int | None) -> Tensor:
    if rows is None or len(tensor) == rows:
        return tensor
    return torch.cat([tensor[:rows], tensor.new_zeros(max(0, rows - len(tensor)), *tensor.shape[1:])])


def content(file: str, tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> bytes:
    """The bytes of the file of the weights."""
    if file == WEIGHTS:
        return packed_safetensors(dict(tensors), metadata={"format": "pt"})
    held: Any = OrderedDict(tensors)
    if file == CHECKPOINT:
        averaged = {name: tensor for name, tensor in tensors.items() if not name.endswith(INV_FREQ)}
        held = {
            **{"epoch": 0, "global_step": 0, "pytorch-lightning_version": "2.5.1", "state_dict": held},
            **{"hyper_parameters": {"config": dict(described)}, "config": dict(described), "ema_params": averaged},
        }
    buffer = io.BytesIO()
    torch.save(held, buffer)
    return buffer.getvalue()

"""Export of models with the network ddit in the layout of a paper's own code."""

import io
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save as packed_safetensors
from torch import Tensor

from unnoise.checkpoint.format import CONFIG
from unnoise.checkpoint.published.bd3lm import BD3LM_SAMPLING, bd3lm_config
from unnoise.checkpoint.published.ddit_weights import COS, INV_FREQ, SIN, names
from unnoise.checkpoint.published.duo import duo_config
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.flexmdm import flexmdm_config
from unnoise.checkpoint.published.gidd import gidd_config
from unnoise.checkpoint.published.mdlm import mdlm_config
from unnoise.checkpoint.published.sedd import sedd_config
from unnoise.checkpoint.published.tensor_files import PICKLE, WEIGHTS
from unnoise.checkpoint.published.tokenizer_files import MASK, codec_tokenizer
from unnoise.checkpoint.published.udlm import udlm_config
from unnoise.data.tokenizer import FILE as TOKENIZER
from unnoise.files import write_atomically
from unnoise.method_table import method_options
from unnoise.network.ddit import Ddit, frequencies
from unnoise.network.network_base import config_of_network
from unnoise.registry import parse_settings

if TYPE_CHECKING:
    from unnoise.model.parts import ModelParts

CHECKPOINT = "last.ckpt"


def inverse_frequencies(model: Exported) -> dict[str, Tensor]:
    """Return the rotary buffer of most layouts."""
    return {INV_FREQ: frequencies(_head_width(model), torch.device("cpu"))}


def cached_rotations(model: Exported) -> dict[str, Tensor]:
    """Return the rotary buffers of GIDD: [1, L, 3, 1, D], where the part for the values is the identity."""
    angle = torch.arange(model.length)[:, None] * frequencies(_head_width(model), torch.device("cpu"))
    angle = torch.cat([angle, angle], -1)[None, :, None, None]
    return {
        COS: torch.cat([angle.cos(), angle.cos(), torch.ones_like(angle)], 2),
        SIN: torch.cat([angle.sin(), angle.sin(), torch.zeros_like(angle)], 2),
    }


def _head_width(model: Exported) -> int:
    return model.network["width"] // model.network["heads"]


@dataclass(frozen=True)
class Target:
    """A layout for export.

    described: function that returns its configuration, or raises ValueError if the model does not fit.
    file: name of the weight file.
    prefix: prefix of the tensors' names.
    buffers: function that returns the rotary buffers.
    numbers: further numbers in the file, without the prefix.
    """

    described: Callable[[Exported], dict[str, Any]]
    file: str = WEIGHTS
    prefix: str = ""
    buffers: Callable[[Exported], dict[str, Tensor]] = inverse_frequencies
    numbers: Mapping[str, float] = field(default_factory=dict)


TARGETS: dict[str, Target] = {
    "mdlm": Target(mdlm_config, prefix="backbone."),
    "sedd": Target(sedd_config, file=PICKLE),
    "bd3lm": Target(bd3lm_config, prefix="backbone.", numbers=BD3LM_SAMPLING),
    "udlm": Target(udlm_config, prefix="backbone."),
    "duo": Target(duo_config, prefix="backbone."),
    "gidd": Target(gidd_config, buffers=cached_rotations),
    "flexmdm": Target(flexmdm_config, file=CHECKPOINT, prefix="model._orig_mod."),
}


def export(model: "ModelParts", layout: str, folder: Path) -> Path:
    """Write config.json, the weights and the tokenizer to a folder, and return the path of the weights."""
    if layout not in TARGETS:
        raise ValueError(f"the layout must be one of {', '.join(TARGETS)}, found {layout!r}")
    target = TARGETS[layout]
    network = model.network
    if not isinstance(network, Ddit):
        raise ValueError(
            f"only models with the network ddit are written in published layouts, and this one has {type(network).__name__}: "
            "train with --network ddit"
        )
    base, _, settings = model.method.name.partition(":")
    exported = Exported(
        method=base,
        options=method_options(base) | parse_settings(base, settings, "method"),
        network=config_of_network(network),
        length=model.length,
        labels=len(model.labels),
    )
    described = target.described(exported)
    tokenizer = codec_tokenizer(model.codec)
    if tokenizer is not None and exported.rows > model.codec.vocab and tokenizer.token_to_id(MASK) is not None:
        raise ValueError(
            f"the tokenizer of this model has {MASK} as a token, which the layout {layout} would take for its mask"
        )
    tensors = exported_tensors(network.state_dict(), exported, target)
    folder.mkdir(parents=True, exist_ok=True)
    if tokenizer is not None:
        write_atomically(folder / TOKENIZER, tokenizer.to_str(pretty=True).encode())
    write_atomically(folder / target.file, weight_file(target.file, tensors, described))
    write_atomically(folder / CONFIG, (json.dumps(described, indent=2, sort_keys=True) + "\n").encode())
    return folder / target.file


def exported_tensors(weights: Mapping[str, Tensor], model: Exported, target: Target) -> dict[str, Tensor]:
    """Return the tensors under the layout's names. Rows of its output head that our network lacks become zeros."""
    stored = {**model.network, "head_rows": model.rows}
    found = {
        theirs: _with_rows(weights[ours].detach().cpu().float(), shape[0] if ours.startswith("head.") else None)
        for ours, theirs, shape in names(stored)
    }
    tensors = {target.prefix + name: tensor.contiguous() for name, tensor in (found | target.buffers(model)).items()}
    return tensors | {name: torch.tensor(value) for name, value in target.numbers.items()}


def _with_rows(tensor: Tensor, rows: int | None) -> Tensor:
    if rows is None or len(tensor) == rows:
        return tensor
    return torch.cat([tensor[:rows], tensor.new_zeros(max(0, rows - len(tensor)), *tensor.shape[1:])])


def weight_file(file: str, tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> bytes:
    """Return the content of the weight file with this name."""
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

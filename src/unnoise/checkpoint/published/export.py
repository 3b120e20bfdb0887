"""Export of models with the network ddit in the layout of a paper's own code."""

import io
import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save as packed_safetensors
from torch import Tensor

from unnoise.checkpoint.format import CONFIG
from unnoise.checkpoint.published.ddit_layouts import BD3LM_SAMPLING, DDIT_CONFIGS, Exported
from unnoise.checkpoint.published.ddit_weights import COS, INV_FREQ, SIN, names
from unnoise.checkpoint.published.tensor_files import PICKLE, WEIGHTS
from unnoise.checkpoint.published.tokenizer_files import MASK, codec_tokenizer
from unnoise.data.tokenizer import FILE as TOKENIZER
from unnoise.files import write_atomically
from unnoise.method_table import method_options
from unnoise.network.ddit import Ddit, frequencies
from unnoise.network.network_base import config_of_network
from unnoise.registry import parse_settings

if TYPE_CHECKING:
    from unnoise.model.model import Model

CHECKPOINT = "last.ckpt"


@dataclass(frozen=True)
class Target:
    """The weight file of a layout.

    file: its name.
    prefix: prefix of the tensors' names.
    cached_rotations: whether it has cosines and sines of the rotary positions, instead of their frequencies.
    numbers: further numbers in the file, without the prefix.
    """

    file: str = WEIGHTS
    prefix: str = "backbone."
    cached_rotations: bool = False
    numbers: Mapping[str, float] = field(default_factory=dict)


TARGETS: dict[str, Target] = {
    **dict.fromkeys(DDIT_CONFIGS, Target()),
    "sedd": Target(file=PICKLE, prefix=""),
    "bd3lm": Target(numbers=BD3LM_SAMPLING),
    "gidd": Target(prefix="", cached_rotations=True),
    "flexmdm": Target(file=CHECKPOINT, prefix="model._orig_mod."),
}


def export(model: "Model", layout: str, folder: Path) -> Path:
    """Write config.json, the weights and the tokenizer to a folder, and return the path of the weights."""
    if layout not in TARGETS:
        raise ValueError(f"the layout must be one of {', '.join(TARGETS)}, found {layout!r}")
    target = TARGETS[layout]
    network = model.network
    if not isinstance(network, Ddit):
        raise ValueError(
            f"only models with the network ddit are written in published layouts, but this one has {type(network).__name__}: "
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
    described = DDIT_CONFIGS[layout](exported)
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
    found = _rotary_buffers(model, target.cached_rotations)
    for ours, theirs, shape in names({**model.network, "head_rows": model.rows}):
        tensor = weights[ours].detach().cpu().float()
        if ours.startswith("head."):
            tensor = torch.cat([tensor[: shape[0]], tensor.new_zeros(max(0, shape[0] - len(tensor)), *tensor.shape[1:])])
        found[theirs] = tensor
    tensors = {target.prefix + name: tensor.contiguous() for name, tensor in found.items()}
    return tensors | {name: torch.tensor(value) for name, value in target.numbers.items()}


def _rotary_buffers(model: Exported, cached: bool) -> dict[str, Tensor]:
    waves = frequencies(model.network["width"] // model.network["heads"], torch.device("cpu"))
    if not cached:
        return {INV_FREQ: waves}
    angle = (torch.arange(model.length)[:, None] * waves).repeat(1, 2)[None, :, None, None]
    return {  # [1, L, 3, 1, D] for queries, keys and values; values are not rotated
        COS: torch.cat([angle.cos(), angle.cos(), torch.ones_like(angle)], 2),
        SIN: torch.cat([angle.sin(), angle.sin(), torch.zeros_like(angle)], 2),
    }


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

"""The readers of published diffusion models with the network ddit: how each is known, and read."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published import bd3lm, duo, flexmdm, gidd, lightning, mdlm, sedd, udlm
from unnoise.checkpoint.published.base import Published, Reader
from unnoise.checkpoint.published.ddit import Layout, read_ddit
from unnoise.checkpoint.published.tensor_files import folder_tensors

Described = Mapping[str, Any]


def _of_type(kind: str) -> Callable[[Path, Described], bool]:
    return lambda path, described: path.is_dir() and described.get("model_type") == kind


def _from_folder(layout: Callable[[Described], Layout]) -> Callable[[Path, Described], Published]:
    return lambda path, described: read_ddit(layout(described), folder_tensors(path), path)


def _from_checkpoint(path: Path, described: Described) -> Published:
    file = lightning.checkpoint_file(path)
    assert file is not None
    config, tensors, which = lightning.read_checkpoint(file, described)
    layout = lightning.lightning_layout(config)
    return read_ddit(replace(layout, notes={**layout.notes, "weights": which}), tensors, file.parent)


DIFFUSION_READERS = (
    Reader("mdlm", _of_type(mdlm.TYPE), _from_folder(mdlm.layout)),
    Reader("bd3lm", _of_type(bd3lm.TYPE), _from_folder(bd3lm.layout)),
    Reader("duo", _of_type(duo.TYPE), _from_folder(duo.layout)),
    Reader("udlm", _of_type(udlm.TYPE), _from_folder(udlm.layout)),
    Reader(
        "gidd",
        lambda path, described: path.is_dir() and described.get("model_type") == gidd.TYPE,
        lambda path, described: read_ddit(gidd.layout(described, path), folder_tensors(path), path),
    ),
    Reader("sedd", lambda path, described: path.is_dir() and sedd.recognised(described), _from_folder(sedd.layout)),
    Reader("lightning", lambda path, _: lightning.checkpoint_file(path) is not None, _from_checkpoint),
)
LAYOUTS = (mdlm.NAME, sedd.NAME, bd3lm.NAME, udlm.NAME, duo.NAME, gidd.NAME, flexmdm.NAME)

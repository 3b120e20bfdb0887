"""The state of a run as one file: weights, moments, averaged weights, step, and the options that it was begun with."""

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from unnoise.checkpoint.tensors import packed, read_tensors
from unnoise.files import write_atomically
from unnoise.training.average import put_parameters
from unnoise.training.callback import LOG
from unnoise.training.options import check_unchanged

if TYPE_CHECKING:
    from unnoise.training.loop import TrainingRun

STATE, PREVIOUS = "training.safetensors", "training.previous.safetensors"
MOMENT = "moment"


def save_state(run: "TrainingRun", path: Path) -> None:
    """Write the state, whole or not at all."""
    tensors: dict[str, Tensor] = {f"weight/{name}": weight for name, weight in run.learned.named_parameters()}
    tensors |= {f"buffer/{name}": value for name, value in learned_buffers(run).items()}
    names = {id(weight): name for name, weight in run.learned.named_parameters()}
    for optimizer in run.optimizers:
        for weight, state in optimizer.state.items():
            tensors |= {f"{MOMENT}/{kind}/{names[id(weight)]}": value for kind, value in state.items()}
    if run.average is not None:
        tensors |= {f"average/{name}": value for name, value in run.average.weights.items()}
    try:
        content = packed(tensors, run.description())
    except ValueError as error:
        raise ValueError(f"{error}, so no checkpoint is written: the last one stays") from error
    keep_previous(path)
    write_atomically(path, content)


def keep_previous(path: Path) -> None:
    """Let the checkpoint that is about to be replaced be found under another name."""
    if not path.exists():
        return
    link = path.with_name(f".{PREVIOUS}.{os.getpid()}.part")
    link.unlink(missing_ok=True)
    try:
        os.link(path, link)
    except OSError:  # no links on this file system
        shutil.copyfile(path, link)
    os.replace(link, path.with_name(PREVIOUS))


def load_state(run: "TrainingRun", path: Path) -> None:
    """Put a state into a run; ValueError if it belongs to another one."""
    folder = path.parent
    about, tensors = read_newest(folder)
    if about.get("method") != run.model.method.name:
        raise ValueError(f"{folder} holds a run of {about.get('method')}, not of {run.model.method.name}")
    if about.get("data_digest", run.data_digest) != run.data_digest:
        raise ValueError(f"the run in {folder} read other data: go on with the same, or choose another folder")
    check_unchanged(run.options, about.get("options") or {}, str(folder))
    try:
        put_parameters(run.learned, {name: tensors[f"weight/{name}"] for name, _ in run.learned.named_parameters()})
    except (KeyError, RuntimeError) as error:
        raise ValueError(f"the run in {folder} has a network of another shape: resume with the same options") from error
    for name, value in learned_buffers(run).items():
        if f"buffer/{name}" in tensors:
            value.copy_(tensors[f"buffer/{name}"])
    by_name = dict(run.learned.named_parameters())
    for optimizer in run.optimizers:
        mine = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
        for key, value in tensors.items():
            if key.startswith(f"{MOMENT}/"):
                _, kind, name = key.split("/", 2)
                if id(by_name[name]) in mine:
                    optimizer.state[by_name[name]][kind] = value.to(by_name[name].device)
    try:
        run.done, run.tokens, run.seconds = int(about["step"]), int(about["tokens"]), float(about["seconds"])
        run.curve = [(int(step), float(bits), float(error)) for step, bits, error in about["curve"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the checkpoint in {folder} does not say how far the run had come ({error})") from error
    averaged = {key.partition("/")[2]: value for key, value in tensors.items() if key.startswith("average/")}
    if run.average is not None and averaged.keys() == by_name.keys():
        run.average.restore(averaged, run.done)
    cut_log(folder / LOG, run.done)


def learned_buffers(run: "TrainingRun") -> dict[str, Tensor]:
    """What changes while training but has no gradient, such as an objective's running means."""
    weights = dict(run.learned.named_parameters())
    return {name: value for name, value in run.learned.state_dict().items() if name not in weights}


def read_state(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A checkpoint: what it says of the run, and its tensors."""
    try:
        about, tensors = read_tensors(path)
    except ValueError as error:
        raise ValueError(f"the checkpoint {path} cannot be read: {error}") from error
    if not about or not any(key.startswith(f"{MOMENT}/") for key in tensors):
        raise ValueError(f"the checkpoint {path} is not one of a run of this version of unnoise")
    return about, tensors


def has_state(folder: Path) -> bool:
    """Whether a folder holds a run that can go on."""
    return any((folder / name).exists() for name in (STATE, PREVIOUS))


def read_newest(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The last checkpoint, or the one before it if that is damaged; ValueError if neither can be read."""
    try:
        return read_state(folder / STATE)
    except ValueError:
        if not (folder / PREVIOUS).exists():
            raise
        return read_state(folder / PREVIOUS)


def read_options(folder: Path) -> dict[str, Any]:
    """The options that the run in a folder was begun with; none where there is no run."""
    if not has_state(folder):
        return {}
    about = read_newest(folder)[0]
    options = about.get("options")
    if not isinstance(options, dict):
        raise ValueError(f"the checkpoint in {folder} does not say with which options the run was begun")
    return dict(options)


def cut_log(path: Path, step: int) -> None:
    """Drop what a killed run logged after its last checkpoint."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
    write_atomically(path, "".join(kept).encode())

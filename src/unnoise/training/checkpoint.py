"""The state of a run as one file: weights, moments, averaged weights, step, and the options that it was begun with."""

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from unnoise.files import write_atomically
from unnoise.training.average import put_parameters
from unnoise.training.callback import LOG
from unnoise.training.options import check_unchanged

if TYPE_CHECKING:
    from unnoise.training.loop import TrainingRun

STATE, PREVIOUS = "training.safetensors", "training.previous.safetensors"
MOMENTS = ("first", "second", "count")


def save_state(run: "TrainingRun", path: Path) -> None:
    """Write the state, whole or not at all."""
    tensors: dict[str, Tensor] = {f"weight/{name}": weight for name, weight in run.learned.named_parameters()}
    tensors |= {f"buffer/{name}": value for name, value in learned_buffers(run).items()}
    for weight, state in run.optimizer.state.items():
        for kind, value in state.items():
            tensors[f"{kind}/{run.names[id(weight)]}"] = value
    if run.average is not None:
        tensors |= {f"average/{name}": value for name, value in run.average.weights.items()}
    plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
    for name, value in plain.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise ValueError(f"{name} holds numbers that are not finite, so no checkpoint is written: the last one stays")
    content = save(plain, metadata={"unnoise": json.dumps(run.description(), allow_nan=False)})
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
    for key, value in tensors.items():
        kind, _, name = key.partition("/")
        if kind in MOMENTS:
            run.optimizer.state[by_name[name]][kind] = value.to(by_name[name].device)
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
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})["unnoise"])
        if not isinstance(about, dict):
            raise ValueError("it does not describe a run")
        return about, load_file(path)
    except Exception as error:
        raise ValueError(f"the checkpoint {path} is damaged or cut short ({error})") from error


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
    if not (folder / STATE).exists():
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

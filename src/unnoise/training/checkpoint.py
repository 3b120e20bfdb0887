"""The state of a run as one file: weights, moments, averaged weights, step, and the options that it was begun with."""

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from unnoise.files import write_atomically
from unnoise.training.average import put_parameters
from unnoise.training.callback import LOG
from unnoise.training.options import check_unchanged

if TYPE_CHECKING:
    from unnoise.training.loop import TrainingRun

STATE = "training.safetensors"
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
    write_atomically(path, save(plain, metadata={"unnoise": json.dumps(run.description())}))


def load_state(run: "TrainingRun", path: Path) -> None:
    """Put a state into a run; ValueError if it belongs to another one."""
    folder = path.parent
    about, tensors = read_state(path)
    if about["method"] != run.model.method.name:
        raise ValueError(f"{folder} holds a run of {about['method']}, not of {run.model.method.name}")
    if about.get("data_digest", run.data_digest) != run.data_digest:
        raise ValueError(f"the run in {folder} read other data: go on with the same, or choose another folder")
    check_unchanged(run.options, about["options"], str(folder))
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
        elif kind == "average" and run.average is not None:
            run.average.weights[name] = value.to(by_name[name].device)
    run.done, run.tokens, run.seconds = int(about["step"]), int(about["tokens"]), float(about["seconds"])
    run.curve = [tuple(point) for point in about["curve"]]
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
        return about, load_file(path)
    except Exception as error:
        raise ValueError(f"the checkpoint {path} is damaged or cut short ({error})") from error


def read_options(folder: Path) -> dict[str, Any]:
    """The options that the run in a folder was begun with; none where there is no run."""
    if not (folder / STATE).exists():
        return {}
    try:
        with safe_open(folder / STATE, "pt") as file:
            return dict(json.loads((file.metadata() or {})["unnoise"])["options"])
    except Exception as error:
        raise ValueError(f"the checkpoint {folder / STATE} is damaged or cut short ({error})") from error


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

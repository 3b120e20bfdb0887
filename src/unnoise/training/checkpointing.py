"""Checkpoints of a run: weights, moments, averaged weights, step and options.

Each checkpoint is a folder such as checkpoints/step-00000200. torch.distributed.checkpoint writes the tensors as safetensors in
the background, each process its part. run.json comes last and marks the checkpoint as complete; it holds the step, the options,
and the length and checksum of each file. Any number of processes can read a checkpoint, sharded or not.
"""

import contextlib
import json
import re
import shutil
import warnings
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError
from torch import Tensor

from unnoise import distributed
from unnoise.files import read_bytes, write_atomically
from unnoise.training.callbacks import LOG
from unnoise.training.parallel import local
from unnoise.training.training_options import check_unchanged

if TYPE_CHECKING:
    from unnoise.training.trainer import TrainingRun

FOLDER, MARKER = "checkpoints", "run.json"
BEFORE = "training.safetensors"  # the state file of earlier versions
MOMENT = "moment"
LARGEST_MARKER = 64 * 2**20  # bytes
NO_GROUP = "torch.distributed is disabled, unavailable or uninitialized"  # a warning of torch about a run of one process


class Found(NamedTuple):
    """A readable checkpoint: its folder, its metadata, and why newer ones cannot be read."""

    folder: Path
    about: dict[str, Any]
    damaged: str


# ---- writing -----------------------------------------------------------------------------------------------------------


class CheckpointWriter:
    """Writer of the checkpoints of a run, one at a time, which keeps the newest ones."""

    def __init__(self, out: Path, keep: int):
        self.folder, self.keep = out / FOLDER, keep
        self.group = distributed.new_group()  # used by the writing threads
        self.pending: tuple[Path, dict[str, Any], Future[Any]] | None = None

    def begin(self, tensors: Mapping[str, Tensor], about: dict[str, Any]) -> None:
        """Start writing in the background, or raise ValueError if a tensor is not finite."""
        self.finish()
        bad = [name for name, value in tensors.items() if value.is_floating_point() and not _finite(value)]
        if distributed.all_reduce(len(bad), torch.device("cpu")):
            raise ValueError(f"{min(bad, default='a weight')} holds numbers that are not finite, so no checkpoint is written")
        path = self.folder / f"step-{about['step']:08d}"
        if distributed.rank() == 0:
            with _as_sentence(path):
                shutil.rmtree(path, ignore_errors=True)
                path.mkdir(parents=True)
        distributed.barrier()
        copies = {name: value.detach().clone(memory_format=torch.contiguous_format) for name, value in tensors.items()}
        pool = ThreadPoolExecutor(1)
        self.pending = path, about, pool.submit(self._write, path, copies, alone=distributed.world() == 1)
        pool.shutdown(wait=False)

    def _write(self, path: Path, tensors: dict[str, Tensor], *, alone: bool) -> None:
        """Write tensors in a thread, which does not know the number of processes: it is kept in a context variable."""
        from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter  # these take a second to import
        from torch.distributed.checkpoint.state_dict_saver import save

        writer = HuggingFaceStorageWriter(str(path), save_distributed=True)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", NO_GROUP)
            save(tensors, storage_writer=writer, process_group=self.group, no_dist=alone)

    def poll(self) -> None:
        """Finish the pending checkpoint if its tensors are written."""
        if self.pending is not None and self.pending[2].done():
            self.finish()

    def finish(self) -> None:
        """Wait for the pending checkpoint, mark it as complete, and remove old ones."""
        if self.pending is None:
            return
        (path, about, future), self.pending = self.pending, None
        try:
            with _as_sentence(path):
                future.result()
        except ValueError:
            shutil.rmtree(path, ignore_errors=True)
            raise
        if distributed.rank() > 0:
            return
        files = {file.name: [file.stat().st_size, checksum(file)] for file in sorted(path.glob("*.safetensors"))}
        write_atomically(path / MARKER, json.dumps({**about, "files": files}, allow_nan=False).encode())
        complete = [folder for folder in folders(path.parent.parent) if (folder / MARKER).exists()]
        for folder in folders(path.parent.parent):
            if folder not in complete[: self.keep]:
                shutil.rmtree(folder, ignore_errors=True)


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(local(tensor)).all())


@contextlib.contextmanager
def _as_sentence(path: Path) -> Iterator[None]:
    """Turn errors of writing into a ValueError of one sentence."""
    from torch.distributed.checkpoint.api import CheckpointException

    try:
        yield
    except (OSError, SafetensorError, CheckpointException) as error:
        failures = error.failures.values() if isinstance(error, CheckpointException) else [(error, None)]
        first = next(iter(failures))[0]
        words = first.strerror if isinstance(first, OSError) and first.strerror else first
        raise ValueError(f"cannot write {path}: {words} (earlier checkpoints are intact)") from error


def checksum(path: Path) -> int:
    """Return the CRC-32 of a file."""
    value = 0
    with open(path, "rb") as file:
        while part := file.read(1 << 22):
            value = zlib.crc32(part, value)
    return value


# ---- reading -----------------------------------------------------------------------------------------------------------


def folders(out: Path) -> list[Path]:
    """Return the checkpoint folders of a run, complete or not, newest first."""
    there = out / FOLDER
    if not there.is_dir():
        return []
    return sorted((path for path in there.iterdir() if re.fullmatch(r"step-\d{8,}", path.name)), reverse=True)


def has_state(out: Path) -> bool:
    """Return whether a folder holds a run that can be resumed."""
    if (out / BEFORE).exists() and not folders(out):
        raise ValueError(
            f"the run in {out} was saved by an earlier version of unnoise and cannot be resumed: use another folder"
        )
    return any((folder / MARKER).exists() for folder in folders(out))


def read_newest(out: Path, check: bool = True) -> Found:
    """Return the newest complete checkpoint, or raise ValueError. check: skip checkpoints with damaged files."""
    damaged = []
    for folder in folders(out):
        try:
            about = read_marker(folder)
            if check:
                check_files(folder, about)
            return Found(folder, about, "; ".join(damaged))
        except ValueError as error:
            damaged.append(f"the checkpoint {folder} cannot be read: {error}")
    raise ValueError(damaged[0] if damaged else f"there is no checkpoint in {out}")


def read_marker(folder: Path) -> dict[str, Any]:
    """Return the metadata of a checkpoint, or raise ValueError if it is incomplete."""
    try:
        about = json.loads(read_bytes(folder / MARKER, LARGEST_MARKER).decode())
    except FileNotFoundError:
        raise ValueError("it was not finished") from None
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"its {MARKER} is damaged ({error})") from error
    files = about.get("files") if isinstance(about, dict) else None
    if not isinstance(files, dict) or not files:
        raise ValueError(f"its {MARKER} does not name its files")
    return about


def check_files(folder: Path, about: Mapping[str, Any]) -> None:
    """Raise ValueError if a file of a checkpoint is missing or damaged."""
    for name, wanted in about["files"].items():
        path = folder / Path(name).name
        if not path.is_file():
            raise ValueError(f"{name} is missing")
        if [path.stat().st_size, checksum(path)] != wanted:
            raise ValueError(f"{name} is corrupted or truncated")


def read_options(out: Path) -> dict[str, Any]:
    """Return the options of the run in a folder, empty if there is no run."""
    if not has_state(out):
        return {}
    options = read_newest(out, check=False).about.get("options")
    if not isinstance(options, dict):
        raise ValueError(f"the checkpoint in {out} does not contain the options of the run")
    return dict(options)


# ---- a run's state -----------------------------------------------------------------------------------------------------


def collect_state(run: "TrainingRun") -> dict[str, Tensor]:
    """Return all tensors of a run by name."""
    tensors: dict[str, Tensor] = {f"weight/{name}": weight.detach() for name, weight in run.learned.named_parameters()}
    tensors |= {f"buffer/{name}": value for name, value in learned_buffers(run).items()}
    names = {id(weight): name for name, weight in run.learned.named_parameters()}
    for optimizer in run.optimizers:
        for weight, state in optimizer.state.items():
            tensors |= {f"{MOMENT}/{kind}/{names[id(weight)]}": value for kind, value in state.items()}
    if run.average is not None:
        tensors |= {f"average/{name}": value for name, value in run.average.weights.items()}
    return tensors


def load_state(run: "TrainingRun", out: Path) -> str:
    """Load the newest checkpoint into a run and return why newer ones were skipped.

    Raise ValueError if it belongs to a different run.
    """
    from torch.distributed.checkpoint.api import CheckpointException

    folder, about, damaged = distributed.broadcast_result(lambda: read_newest(out))
    if about.get("method") != run.model.method.name:
        raise ValueError(f"{out} holds a run of {about.get('method')}, not of {run.model.method.name}")
    if about.get("data_digest", run.data_digest) != run.data_digest:
        raise ValueError(f"the run in {out} was trained on different data: use the same data, or choose another folder")
    check_unchanged(run.options, about.get("options") or {}, str(out))
    try:
        _read_tensors(run, folder)
    except (SafetensorError, CheckpointException, OSError, KeyError, TypeError, AssertionError) as error:
        raise ValueError(f"the checkpoint {folder} cannot be read: {error}") from error
    try:
        run.done, run.tokens, run.seconds = int(about["step"]), int(about["tokens"]), float(about["seconds"])
        run.curve = [(int(step), float(bits), float(error)) for step, bits, error in about["curve"]]
        run.bad = int(about["bad"])
        if run.average is not None:
            run.average.steps = int(about["averaged"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"the checkpoint {folder} does not record the progress of the run ({error})") from error
    if distributed.rank() == 0:
        cut_log(out / LOG, run.done)
    return damaged


def _read_tensors(run: "TrainingRun", folder: Path) -> None:
    """Load weights, buffers, optimizer state and averaged weights from a checkpoint. Each process loads its own part."""
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    from torch.distributed.checkpoint.state_dict_loader import load

    reader = HuggingFaceStorageReader(str(folder))
    found = reader.read_metadata().state_dict_metadata
    saved = {name: tuple(one.size) for name, one in found.items() if isinstance(one, TensorStorageMetadata)}
    by_name = dict(run.learned.named_parameters())
    moments: dict[str, Tensor] = {}
    for key, shape in saved.items():
        if key.startswith(f"{MOMENT}/"):
            _, kind, name = key.split("/", 2)
            weight = by_name.get(name)
            if weight is not None:
                fresh = torch.zeros(shape, device=weight.device) if kind == "step" else torch.zeros_like(weight.detach())
                moments[key] = fresh
    wanted = {name: value for name, value in collect_state(run).items() if not name.startswith(f"{MOMENT}/")} | moments
    if wanted.keys() != saved.keys() or any(tuple(value.shape) != saved[name] for name, value in wanted.items()):
        raise ValueError(f"the run in {folder.parent.parent} has a network of a different shape: resume with the same options")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", NO_GROUP)
        load(wanted, storage_reader=reader, no_dist=distributed.world() == 1)
    for optimizer in run.optimizers:
        mine = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
        for key, value in moments.items():
            _, kind, name = key.split("/", 2)
            if id(by_name[name]) in mine:
                optimizer.state[by_name[name]][kind] = value


def learned_buffers(run: "TrainingRun") -> dict[str, Tensor]:
    """Return the state that changes in training without a gradient, such as running means of an objective."""
    weights = dict(run.learned.named_parameters())
    return {name: value for name, value in run.learned.state_dict().items() if name not in weights}


def cut_log(path: Path, step: int) -> None:
    """Drop the lines that a killed run logged after its last checkpoint."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
    write_atomically(path, "".join(kept).encode())

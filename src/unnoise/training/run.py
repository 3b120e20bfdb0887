"""Training runs from options: stages, data, model and an earlier state; and `unnoise.train`."""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unnoise import distributed
from unnoise.checkpoint.format import CONFIG, read_config
from unnoise.data.codec_names import AUTO
from unnoise.data.corpus import corpus, load_source
from unnoise.data.mixture import check_same_weights
from unnoise.data.texts import Source
from unnoise.files import check_folder
from unnoise.method_table import Method, method as method_named
from unnoise.model.io import init_from, load, without_weights
from unnoise.model.model import Model
from unnoise.objective import Objective
from unnoise.registry import check_keywords
from unnoise.training.callbacks import Callback
from unnoise.training.checkpointing import FOLDER, has_state, read_options
from unnoise.training.trainer import Report, TrainingRun
from unnoise.training.training_options import INITIAL_SHAPE, LENGTH, MINUTES, RunOptions, TrainingOptions, check_unchanged

STAGES = "stages"  # folder of the runs before the last stage


def prepare_run(options: RunOptions, out: Path, resume: bool = False, device: str = "cpu") -> TrainingRun:
    """Return the run that the options describe. It writes to `out`; with `resume` it continues the run there, if there is one.

    A resumed run must have its original options, except those in `FREE_TO_CHANGE`.
    """
    method = method_named(options.method)
    check_out(out)
    begun = has_state(out)
    if begun and not resume:
        raise ValueError(f"{out} already holds a run: add --resume to continue it, or choose another --out")
    if not begun and (out / CONFIG).exists() and not (resume and (out / FOLDER).exists()):  # a run killed at its start
        raise ValueError(
            f"{out} holds a model but no checkpoint to resume from: choose another --out, or train from it with --init {out}"
        )
    if begun:
        saved = read_options(out)
        check_unchanged(options, saved, str(out))
        check_same_weights(str(saved.get("data", "")), options.data, str(out))
    if options.eval_every is None:
        options = replace(options, eval_every=max(1, options.steps // 10) if options.steps else 250)
    source = corpus(options.data)
    if begun and (out / CONFIG).exists():
        model = without_weights(out, read_config(out))  # the checkpoint has the weights, even if the model file is damaged
    else:
        whole = options.segment == "documents"
        variable = method.process(1).variable_length
        if whole and variable:
            raise ValueError(f"{options.method} reads sequences of any length: leave --segment out")
        if options.init is not None:
            if options.size != RunOptions.size and Path(options.init).parent != out / STAGES:  # a stage has the size of the run
                raise ValueError(INITIAL_SHAPE)
            model = _started(options, method, source, whole)
            return _run(model.to(device), source, options, out, resume)
        codec = source.codec(options.codec, "sentences" if variable else options.segment)
        model = Model.build(
            method,
            codec,
            length=codec.length or options.length or LENGTH,
            size=options.size,
            width=options.width,
            depth=options.depth,
            heads=options.heads,
            seed=options.seed,
            labels=source.label_names,
            network=options.network,
            whole_texts=whole,
        )
    return _run(model.to(device), source, options, out, resume)


def _started(options: RunOptions, method: Method, source: Source, whole: bool) -> Model:
    """Return a model that starts from the weights of another one."""
    first = load(str(options.init))
    codec = first.codec if options.codec == AUTO else source.codec(options.codec, options.segment)
    length = codec.length or options.length or first.length
    fields = "" if options.network == RunOptions.network else options.network  # by default the network of the source
    return init_from(
        first,
        method,
        codec,
        length,
        seed=options.seed,
        labels=source.label_names,
        whole_texts=whole,
        network_fields=fields,
    )


def _run(model: Model, source: Source, options: RunOptions, out: Path, resume: bool) -> TrainingRun:
    run = TrainingRun(model, source, options, out)
    if resume and run.resume() and run.damaged and distributed.rank() == 0:
        print(f"{run.damaged}: resuming from the one before, step {run.done}", file=sys.stderr)
    return run


def check_out(out: Path) -> None:
    """Raise ValueError unless a run can be written to a folder."""
    if out == Path():
        raise ValueError("--out must not be the current folder: choose another folder")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: give a folder")
    check_folder(out)


def split_stages(options: RunOptions, out: Path) -> list[tuple[RunOptions, Path]]:
    """Return the runs that a run consists of, with their folders. The last one is the run itself, with the remaining length.

    "ar=0.5" trains ar for the first half, in OUT/stages/1-ar; "ar=0.4; bd3lm:block=1=0.2" has two stages before the last.
    """
    runs: list[tuple[RunOptions, Path]] = []
    left = 1.0
    plain = replace(options, stages="")
    start = options.init
    for part in filter(None, map(str.strip, options.stages.split(";"))):
        name, _, share = part.rpartition("=")
        try:
            size = float(share)
        except ValueError:
            size = -1.0
        left -= size
        if not name or not 0 < size < 1 or left <= 0:
            raise ValueError(
                f"stages are methods with fractions of the run, in all below 1, such as ar=0.5, found {options.stages!r}"
            )
        folder = out / STAGES / f"{len(runs) + 1}-{name.partition(':')[0]}"
        runs.append((_shortened(replace(plain, method=name, init=start), size), folder))
        start, plain = str(folder), replace(plain, width=None, depth=None, heads=None, codec="auto")
    last = replace(_shortened(plain, left), init=start) if runs else options
    return [*runs, (last, out)]


def _shortened(options: RunOptions, share: float) -> RunOptions:
    if options.steps is not None:
        return replace(options, steps=max(1, round(options.steps * share)))
    return replace(options, minutes=(options.minutes or MINUTES) * share)


def train(
    model: Model,
    data: str | Source | Tensor | Iterable[Any],
    out: str | Path | None = None,
    *,
    objective: Objective | None = None,
    callbacks: Sequence[Callback] = (),
    labels: Sequence[Any] | Tensor | None = None,
    options: TrainingOptions | None = None,
    **overrides: Any,
) -> Report:
    """Train a model and return a report.

    The network's weights become float32.

    data: a corpus (a name, a path, a Corpus), a text, texts (strings, or records with `text` and optionally `label`: a list, an
        iterable, a 🤗 dataset), a stream of tokens [n], or rows of tokens [N, L] padded with −1.
    out: folder for the model, its log and its checkpoints.
    objective: objective to use instead of the method's.
    callbacks: callbacks called after each step, evaluation and checkpoint.
    labels: one label for each text or row; the model must have been built with as many.
    options: training options. Keywords override its fields, so `steps=1000` needs no `TrainingOptions`.
    """
    check_keywords(TrainingOptions, overrides, "training")
    chosen = replace(options or TrainingOptions(), **overrides)
    if chosen.steps is None and chosen.minutes is None:
        raise ValueError("give either steps or minutes")
    if isinstance(data, Tensor):
        source, rows = data, None if labels is None else torch.as_tensor(labels)
    else:
        listed = labels.tolist() if isinstance(labels, Tensor) else None if labels is None else list(labels)
        source, rows = load_source(data, listed), None
    run = TrainingRun(model, source, chosen, Path(out) if out else None, objective=objective, labels=rows)
    return run.run(callbacks)

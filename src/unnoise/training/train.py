"""`unnoise.train`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unnoise.data.corpus import source_of
from unnoise.data.source import Source
from unnoise.keywords import check_keywords
from unnoise.model.model import Model
from unnoise.objective import Objective
from unnoise.training.callback import Callback
from unnoise.training.loop import TrainingRun
from unnoise.training.options import TrainingOptions
from unnoise.training.report import Report


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
        source, rows = source_of(data, _listed(labels)), None
    return TrainingRun(model, source, chosen, Path(out) if out else None, objective, rows).run(callbacks)


def _listed(labels: Sequence[Any] | Tensor | None) -> list[Any] | None:
    if labels is None:
        return None
    return labels.tolist() if isinstance(labels, Tensor) else list(labels)

"""`unnoise.train`: a model, data and options in, a report out."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor

from unnoise.data.corpus import source_of
from unnoise.data.source import Source
from unnoise.model.model import Model
from unnoise.objective import Objective
from unnoise.training.callback import Callback
from unnoise.training.loop import TrainingRun
from unnoise.training.options import TrainingKeywords, TrainingOptions
from unnoise.training.report import Report


def train(
    model: Model,
    data: str | Source | Tensor | Iterable[Any],
    out: str | Path | None = None,
    objective: Objective | None = None,
    callbacks: Sequence[Callback] = (),
    labels: Sequence[Any] | Tensor | None = None,
    **options: Unpack[TrainingKeywords],
) -> Report:
    """Train a model; see `TrainingOptions` for the options.

    data: a corpus (a name, a path, a Corpus), a text, texts (strings, or records with `text` and perhaps `label`: a list, an
    iterable, a 🤗 dataset), a stream of tokens [n], or rows of tokens [N, L] padded with −1. labels: one for each text or row;
    the model must have been built with as many. out: a folder for the model, its log and its checkpoints. objective: one of
    your own instead of the method's.
    """
    chosen = TrainingOptions.of(options)
    if chosen.steps is None and chosen.minutes is None:
        raise ValueError("give either steps or minutes")
    source = data if isinstance(data, Tensor) else source_of(data, None if labels is None else _listed(labels))
    rows = None if labels is None or not isinstance(data, Tensor) else torch.as_tensor(labels)
    return TrainingRun(model, source, chosen, Path(out) if out else None, objective, rows).run(callbacks)


def _listed(labels: Sequence[Any] | Tensor) -> list[Any]:
    return labels.tolist() if isinstance(labels, Tensor) else list(labels)

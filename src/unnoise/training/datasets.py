"""Training and held-out sequences of a run, from a source or from tokens.

Runs in stages (`--stages`): each method starts from the weights of the one before.
"""

from dataclasses import replace
from pathlib import Path

from torch import Tensor

from unnoise.data.texts import SequenceData, Sequences, Source, Windows
from unnoise.model.model import Model
from unnoise.process.state import PAD
from unnoise.training.training_options import MINUTES, RunOptions


def load_datasets(source: Source | Tensor, model: Model, labels: Tensor | None = None) -> tuple[SequenceData, SequenceData]:
    """Return the training sequences and the held-out ones."""
    if isinstance(source, Tensor):
        return _token_texts(source, model, labels)
    names = source.label_names
    if names and len(model.labels) < len(names):
        found = f"has {len(model.labels)}" if model.labels else "has none"
        raise ValueError(f"the data have {len(names)} labels and the model {found}: build it with labels={len(names)}")
    if names and model.labels[: len(names)] != names:
        raise ValueError(
            f"the data's labels are {', '.join(names[:9])} in this order, but the model's are {', '.join(model.labels[:9])}: "
            f"build it with labels={list(names[:9])}"
        )
    held_out = next(name for name in ("valid", "test", "train") if name in source.splits)
    train_texts, valid_texts = (model.texts(source, name) for name in ("train", held_out))
    return train_texts, valid_texts


def _token_texts(tokens: Tensor, model: Model, labels: Tensor | None) -> tuple[SequenceData, SequenceData]:
    cut = max(len(tokens) * 95 // 100, len(tokens) - 100_000)
    characters = _characters_per_token(tokens, model)
    if tokens.dim() == 2:
        if labels is None:
            return Sequences.from_table(tokens[:cut], characters=characters), Sequences.from_table(
                tokens[cut:], characters=characters
            )
        if labels.shape != tokens.shape[:1]:
            raise ValueError(f"there are {len(tokens)} rows and {len(labels)} labels: give one for each row")
        if len(labels) and int(labels.max()) >= len(model.labels):
            raise ValueError(f"labels go up to {int(labels.max())}, and the model was built with {len(model.labels)}")
        return Sequences.from_table(tokens[:cut], labels[:cut], characters), Sequences.from_table(
            tokens[cut:], labels[cut:], characters
        )
    if labels is not None:
        raise ValueError("labels go with texts or with rows [N, L], not with one stream of tokens")
    return Windows(tokens[:cut], model.length, characters), Windows(tokens[cut:], model.length, characters)


def _characters_per_token(tokens: Tensor, model: Model) -> float:
    """Return the number of characters per token, from the first tokens; 1 for images."""
    some = tokens.flatten()[:100_000]
    real = [token for token in some.tolist() if token not in (PAD, model.codec.eos)]
    return 1.0 if model.codec.grid or not real else max(model.codec.count(model.codec.decode(real)), 1) / len(real)


FOLDER = "stages"


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
        folder = out / FOLDER / f"{len(runs) + 1}-{name.partition(':')[0]}"
        runs.append((_shortened(replace(plain, method=name, init=start), size), folder))
        start, plain = str(folder), replace(plain, width=None, depth=None, heads=None, codec="auto")
    last = replace(_shortened(plain, left), init=start) if runs else options
    return [*runs, (last, out)]


def _shortened(options: RunOptions, share: float) -> RunOptions:
    if options.steps is not None:
        return replace(options, steps=max(1, round(options.steps * share)))
    return replace(options, minutes=(options.minutes or MINUTES) * share)

"""The options of a run, in one place: for `unnoise.train`, the commands train and compare, checkpoints and resuming.

Nothing here imports torch, so that the command line can show these options at once.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypedDict

from unnoise.keywords import check_keywords

Loss = Literal["fast", "paper"]
MINUTES = 3.0  # of training, where neither steps nor minutes are given


class TrainingKeywords(TypedDict, total=False):
    """The fields of `TrainingOptions` as keywords."""

    steps: int | None
    minutes: float | None
    loss: Loss
    batch: int
    accumulate: int
    seed: int
    matrix_lr: float
    other_lr: float
    warmup: float
    cooldown: float
    clip: float
    ema: float
    eval_every: int | None
    eval_windows: int
    save_every: int | None
    compile: bool


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How to train. Give steps or minutes; warm-up and cool-down are shares of the run."""

    steps: int | None = None
    """Train for so many steps …"""
    minutes: float | None = None
    """… or for so many minutes (3, if neither is given)."""
    loss: Loss = "fast"
    """fast (what learns fastest, where the method has such an objective) or paper (what the paper trains)."""
    batch: int = 8
    """Texts in a batch."""
    accumulate: int = 1
    """Batches to an update."""
    seed: int = 0
    """Of the first weights, the batches and the noise."""
    matrix_lr: float = 0.02
    """Learning rate of Muon, for matrices."""
    other_lr: float = 0.003
    """Learning rate of Adam, for the rest."""
    warmup: float = 0.02
    """Share of the run over which the learning rates rise."""
    cooldown: float = 1.0
    """Share of the run over which they fall to zero."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    ema: float = 0.0
    """Decay of the averaged weights (EMA); 0 keeps none."""
    eval_every: int | None = None
    """Steps between evaluations; default: a tenth of the run, or 250 where it is counted in minutes."""
    eval_windows: int = 128
    """Held-out texts in an evaluation."""
    save_every: int | None = 200
    """Steps between checkpoints."""
    compile: bool = False
    """torch.compile the network: slow to start, then faster."""

    def __post_init__(self) -> None:
        if self.steps is not None and self.minutes is not None:
            raise ValueError("give either steps or minutes, and not both")
        if self.loss not in ("fast", "paper"):
            raise ValueError(f"loss must be fast or paper, found {self.loss!r}")
        at_least_one = ("steps", "batch", "accumulate", "eval_every", "eval_windows", "save_every")
        positive = ("minutes", "matrix_lr", "other_lr", "clip")
        checks = (
            (at_least_one, lambda value: value >= 1, "must be ≥ 1"),
            (positive, lambda value: 0 < value < math.inf, "must be > 0"),
            (("warmup", "cooldown"), lambda value: 0 <= value <= 1, "is a share of the run, 0 to 1"),
            (("ema",), lambda value: 0 <= value < 1, "must lie in [0, 1)"),
            (("seed",), lambda value: 0 <= value < 2**63, "must lie between 0 and 2^63"),
        )
        for names, right, words in checks:
            for name in names:
                value = vars(self)[name]
                if value is not None and not right(value):
                    raise ValueError(f"{name} {words}, found {value}")

    @staticmethod
    def of(options: TrainingKeywords) -> "TrainingOptions":
        """From keywords, or ValueError with the nearest right one."""
        check_keywords(TrainingOptions, options, "training")
        return TrainingOptions(**options)


@dataclass(frozen=True, kw_only=True)
class RunOptions(TrainingOptions):
    """A whole run: what is trained, on what, and how."""

    method: str
    """A name from `unnoise ls`."""
    data: str = "sotu"
    """sotu, text8, enwik8, digits, a text file, lines of JSON with `text` and perhaps `label` (.jsonl), a folder (train, valid
    and test, text files, or what `unnoise prepare` wrote), images in .npz, or several with their weights, as A:0.7,B:0.3."""
    size: str = "tiny"
    """nano, tiny, small or base."""
    width: int | None = None
    """Override the size's width."""
    depth: int | None = None
    """Override the size's number of layers."""
    heads: int | None = None
    """Override the size's number of heads."""
    length: int = 256
    """Tokens of a text."""
    codec: str = "auto"
    """auto, text8, bytes, chars, bpe, bpe-4096, gpt2:FOLDER, a registered one, or a folder with a model or shards, for its."""
    network: str = "transformer"
    """transformer, or a registered one, with its fields as in gru:width=128."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is None and self.minutes is None:
            object.__setattr__(self, "minutes", MINUTES)


FREE_TO_CHANGE = frozenset(  # on resuming: how long, how often it is measured and saved, how it is computed, and by which path
    # the data are found (that they are the same is checked by themselves)
    {"steps", "minutes", "eval_every", "eval_windows", "save_every", "compile", "data"}
)


def check_unchanged(options: TrainingOptions, saved: Mapping[str, Any], run: str) -> None:
    """ValueError naming the first option in which a run that goes on would differ from the one that was begun."""
    now = asdict(options)
    for field in fields(options):
        name = field.name
        if name in FREE_TO_CHANGE or name not in saved:
            continue
        if saved[name] != now[name]:
            raise ValueError(
                f"the run in {run} has {name} {saved[name]}, not {now[name]}: "
                "go on with the same options, or take another folder"
            )

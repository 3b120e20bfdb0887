"""The options of a run, in one place: for `unnoise.train`, the commands train and compare, checkpoints and resuming.

Nothing here imports torch, so that the command line can show these options at once.
"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, TypedDict, get_args

from unnoise.keywords import check_keywords

Loss = Literal["fast", "paper"]
Precision = Literal["auto", "float32", "bfloat16"]
Optimizer = Literal["muon", "adamw"]
Decay = Literal["linear", "cosine", "exponential", "inverse-sqrt", "constant"]
Decayed = Literal["matrices", "all"]
TextsCut = Literal["windows", "whole"]
MINUTES = 3.0  # of training, where neither steps nor minutes are given


class TrainingKeywords(TypedDict, total=False):
    """The fields of `TrainingOptions` as keywords."""

    steps: int | None
    minutes: float | None
    loss: Loss
    curriculum: bool
    batch: int
    device_batch: int | None
    accumulate: int | None
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
    keep: int
    compile: bool
    precision: Precision
    checkpoint_activations: bool
    deterministic: bool
    shard: bool
    bad_steps: int
    profile: int
    optimizer: Optimizer
    lr: float
    process_lr: float | None
    beta2: float
    weight_decay: float
    weight_decay_on: Decayed
    warmup_steps: int | None
    decay: Decay
    decay_to: float
    dropout: float


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How to train. Give steps or minutes; warm-up and cool-down are shares of the run."""

    steps: int | None = None
    """Number of training steps."""
    minutes: float | None = None
    """Minutes of training, instead of steps; default: 3, if neither is given."""
    loss: Loss = "fast"
    """fast (what learns fastest, where the method has such an objective) or paper (what the paper trains)."""
    curriculum: bool = True
    """A fast loss begins with little noise. With --no-curriculum it has every noise level from the start, which suits a model
    that was trained before."""
    batch: int = 8
    """Sequences per update, over all processes (the global batch)."""
    device_batch: int | None = None
    """Sequences that a process evaluates at once; default: its whole share of the batch. It changes memory, not results."""
    accumulate: int | None = None
    """Parts in which a process evaluates its share of the batch (gradient accumulation), instead of device_batch."""
    seed: int = 0
    """Seed of the initial weights, the batches and the noise."""
    matrix_lr: float = 0.02
    """Learning rate of Muon, for matrices."""
    other_lr: float = 0.003
    """Learning rate of Adam, for the other weights."""
    warmup: float = 0.02
    """Share of the run over which the learning rates rise."""
    cooldown: float = 1.0
    """Share of the run over which they fall to zero."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    ema: float = 0.0
    """Decay of the averaged weights (EMA); 0 keeps none."""
    eval_every: int | None = None
    """Steps between evaluations; default: a tenth of the run, or 250 for a run counted in minutes."""
    eval_windows: int = 128
    """Held-out sequences per evaluation."""
    save_every: int | None = 200
    """Steps between checkpoints."""
    keep: int = 2
    """Number of checkpoints to keep, the newest ones."""
    compile: bool = False
    """torch.compile the network: slow to start, then faster."""
    precision: Precision = "auto"
    """Precision of the network's products: float32, bfloat16, or auto (bfloat16 on CUDA). Weights and moments are float32."""
    checkpoint_activations: bool = False
    """Keep only each block's input and compute the block again in the backward pass: less memory, more time."""
    deterministic: bool = False
    """Use only kernels that give the same bits each time; on a CPU they all do."""
    shard: bool = False
    """Share out weights, gradients and moments over the processes (FSDP2), instead of a copy for each (DDP)."""
    bad_steps: int = 3
    """Steps in a row that may be skipped because the loss or gradient is not finite, before the run stops."""
    profile: int = 0
    """Steps to profile after the first five; writes profile.json (for chrome://tracing) and profile.txt."""

    optimizer: Optimizer = "muon"
    """muon (Muon for matrices, Adam for the rest) or adamw (torch's AdamW for everything; Adam, where weight_decay is 0)."""
    lr: float = 3e-4
    """Learning rate of AdamW."""
    process_lr: float | None = None
    """Learning rate of the process's own parameters (a noise schedule, embeddings), with either optimizer; default: what the
    method has (genmd4: 0.03), or that of the network."""
    beta2: float = 0.95
    """Decay of the average of squared gradients in Adam and AdamW."""
    weight_decay: float = 0.0
    """Weight decay of AdamW; a process's own parameters have none."""
    weight_decay_on: Decayed = "matrices"
    """matrices (not biases, norms and embeddings) or all weights of the network."""
    warmup_steps: int | None = None
    """Warm-up in steps, instead of a share of the run."""
    decay: Decay = "linear"
    """How the learning rates fall over the cool-down; inverse-sqrt falls from the end of the warm-up, constant not at all."""
    decay_to: float = 0.01
    """Share of the learning rates that is left at the end of the run, with exponential decay."""
    dropout: float = 0.0
    """Share of the features that each branch of the network drops in training."""

    def __post_init__(self) -> None:
        if self.steps is not None and self.minutes is not None:
            raise ValueError("give either steps or minutes, and not both")
        for name, known in (
            ("loss", Loss),
            ("precision", Precision),
            ("optimizer", Optimizer),
            ("decay", Decay),
            ("weight_decay_on", Decayed),
        ):
            if vars(self)[name] not in (words := get_args(known)):
                raise ValueError(f"{name} must be {', '.join(words[:-1])} or {words[-1]}, found {vars(self)[name]!r}")
        if self.device_batch is not None and self.accumulate is not None:
            raise ValueError("give either device_batch or accumulate, and not both: one follows from the other")
        at_least_one = ("steps", "batch", "device_batch", "accumulate", "eval_every", "eval_windows", "save_every", "keep")
        at_least_one += ("warmup_steps",)
        positive = ("minutes", "matrix_lr", "other_lr", "clip", "lr", "process_lr")
        checks = (
            (at_least_one, lambda value: value >= 1, "must be ≥ 1"),
            (positive, lambda value: 0 < value < math.inf, "must be > 0"),
            (("bad_steps", "profile"), lambda value: value >= 0, "must be ≥ 0"),
            (("warmup", "cooldown"), lambda value: 0 <= value <= 1, "is a share of the run, 0 to 1"),
            (("ema", "beta2", "dropout"), lambda value: 0 <= value < 1, "must lie in [0, 1)"),
            (("weight_decay",), lambda value: 0 <= value < math.inf, "must be ≥ 0"),
            (("decay_to",), lambda value: 0 < value <= 1, "must lie in (0, 1]"),
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


INITIAL_SHAPE = "a run that starts from a model's weights has that model's size, width, depth and heads: leave them out"
LENGTH = 256  # tokens of a text, where nothing else is said


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
    length: int | None = None
    """Length of a sequence in tokens; default: 256, or with --init the length of that model."""
    codec: str = "auto"
    """auto, text8, bytes, chars, bpe, bpe-4096, gpt2:FOLDER, a registered one, or the folder of a model or of shards."""
    init: str | None = None
    """Start from the weights of a trained model, a folder or a bundled name, with its codec and the shape of its network; parts
    that --network adds (transformer:pointer=true) start untrained."""
    stages: str = ""
    """Methods to train first, with their shares of the run, divided by ; : ar=0.5 trains ar for the first half of the run and
    continues from its weights."""
    texts: TextsCut = "windows"
    """windows (of all the text as one stream) or whole (each line of a file, or record, is a text with an end)."""
    network: str = "transformer"
    """transformer or a registered network, with its fields, such as gru:width=128."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is None and self.minutes is None:
            object.__setattr__(self, "minutes", MINUTES)
        if self.length is None and self.init is None:
            object.__setattr__(self, "length", LENGTH)
        if self.init is not None and (self.width or self.depth or self.heads):
            raise ValueError(INITIAL_SHAPE)


FREE_TO_CHANGE = frozenset(  # on resuming: how long, how often it is measured and saved, how it is computed, and by which path
    # the data are found (that they are the same is checked by themselves)
    {"steps", "minutes", "eval_every", "eval_windows", "save_every", "keep", "compile", "data", "device_batch", "accumulate"}
    | {"init"}
    | {"checkpoint_activations", "deterministic", "shard", "bad_steps", "profile"}
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

"""Options of a training run: arguments of `unnoise.train`, options of the commands, and part of every checkpoint.

This module does not import torch, so `unnoise train --help` answers at once.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from unnoise.registry import check_options, option

Loss = Literal["fast", "paper"]
Precision = Literal["auto", "float32", "bfloat16"]
Optimizer = Literal["muon", "adamw"]
LrSchedule = Literal["linear", "cosine", "exponential", "inverse-sqrt", "constant"]
Decayed = Literal["matrices", "all"]
Segment = Literal["windows", "documents"]
MINUTES = 3.0  # the default length of a run


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options for training. Give either steps or minutes; warmup and cooldown are fractions of the run."""

    steps: int | None = option(None, min=1)
    """Number of training steps."""
    minutes: float | None = option(None, above=0)
    """Length of the run in minutes, instead of steps (default: 3)."""
    loss: Loss = "paper"
    """paper (the loss of the method's paper) or fast (a faster-learning cross-entropy whose noise level rises over the run, for
    methods that have one)."""
    curriculum: bool = True
    """Start a fast loss at low noise levels. With --no-curriculum it uses all noise levels from the start, which suits a model
    that is already trained."""
    batch: int = option(8, min=1, aliases=("--global-batch",))
    """Sequences per update, over all processes (the global batch)."""
    device_batch: int | None = option(None, min=1)
    """Sequences that a process evaluates at once (default: its share of the batch). This changes memory, not results."""
    accumulate: int | None = option(None, min=1)
    """Number of gradient accumulation steps per update, instead of device_batch."""
    seed: int = option(0, min=0, max=2**63 - 1)
    """Seed of the initial weights, the batches and the noise."""
    muon_lr: float = option(0.02, above=0)
    """Learning rate of Muon, for matrices."""
    adam_lr: float = option(0.003, above=0)
    """Learning rate of Adam, for the other weights."""
    warmup: float = option(0.02, min=0, max=1)
    """Fraction of the run over which the learning rates rise."""
    cooldown: float = option(1.0, min=0, max=1)
    """Fraction of the run over which the learning rates fall to zero."""
    max_grad_norm: float = option(1.0, above=0)
    """Largest norm of the gradient."""
    ema_decay: float = option(0.0, min=0, below=1)
    """Decay of the averaged weights (EMA), which are evaluated and saved; 0 turns averaging off."""
    eval_every: int | None = option(None, min=1)
    """Steps between evaluations. The command line defaults to a tenth of the run, or 250 steps with --minutes; `unnoise.train`
    defaults to none."""
    eval_windows: int = option(128, min=1)
    """Held-out sequences per evaluation."""
    save_every: int | None = option(200, min=1)
    """Steps between checkpoints."""
    keep: int = option(2, min=1)
    """Number of newest checkpoints to keep."""
    compile: bool = False
    """Compile the network with torch.compile: a slow start, then faster steps."""
    precision: Precision = "auto"
    """Precision of the network's matrix products: float32, bfloat16, or auto (bfloat16 on CUDA). Weights and moments are
    float32."""
    checkpoint_activations: bool = False
    """Keep only the input of each block and recompute the rest in the backward pass: less memory, more time."""
    deterministic: bool = False
    """Use only deterministic kernels. On a CPU all kernels are deterministic."""
    shard: bool = False
    """Shard weights, gradients and moments over the processes (FSDP2) instead of replicating them (DDP)."""
    max_skipped_steps: int = option(3, min=0)
    """Number of consecutive updates that may be skipped because the loss or gradient is not finite, before the run stops."""
    profile: int = option(0, min=0)
    """Number of steps to profile after the first five; writes profile.json (for chrome://tracing) and profile.txt."""

    optimizer: Optimizer = "muon"
    """muon (Muon for matrices, Adam for the rest) or adamw (torch's AdamW for everything; Adam if weight_decay is 0)."""
    lr: float = option(3e-4, above=0)
    """Learning rate of AdamW."""
    process_lr: float | None = option(None, above=0)
    """Learning rate of the process's own parameters (a noise schedule, embeddings), with either optimizer (default: the
    method's, 0.03 for genmd4, or the network's)."""
    beta2: float = option(0.95, min=0, below=1)
    """Decay of the average of squared gradients in Adam and AdamW; β₁ is 0.9."""
    weight_decay: float = option(0.0, min=0)
    """Weight decay of AdamW. It does not apply to the process's own parameters."""
    weight_decay_on: Decayed = "matrices"
    """matrices (not biases, norms and embeddings) or all weights of the network."""
    warmup_steps: int | None = option(None, min=1)
    """Warm-up in steps, instead of a fraction of the run."""
    lr_schedule: LrSchedule = "linear"
    """Shape of the cool-down; inverse-sqrt falls from the end of the warm-up, constant does not fall."""
    lr_final: float = option(0.01, above=0, max=1)
    """Fraction of the learning rates left at the end of the run, with the exponential schedule."""
    dropout: float = option(0.0, min=0, below=1)
    """Dropout rate of the attention and perceptron branches, in training."""

    def __post_init__(self) -> None:
        check_options(self)
        if self.steps is not None and self.minutes is not None:
            raise ValueError("give either steps or minutes, and not both")
        if self.device_batch is not None and self.accumulate is not None:
            raise ValueError("give either device_batch or accumulate, and not both: one follows from the other")


INITIAL_SHAPE = "a run that starts from another model has that model's size, width, depth and heads: leave them out"
LENGTH = 256  # the default length of a sequence in tokens


@dataclass(frozen=True, kw_only=True)
class RunOptions(TrainingOptions):
    """Options of a whole run: the method, the data, the network, and how to train."""

    method: str
    """Name of a method from `unnoise ls`."""
    data: str = "sotu"
    """sotu, text8, enwik8, digits, a text file, a .jsonl file with `text` and optionally `label` on each line, a folder (train,
    valid and test, text files, or the output of `unnoise prepare`), images in .npz, or a mixture such as A:0.7,B:0.3."""
    size: str = "tiny"
    """Size of the network: nano, tiny, small or base."""
    width: int | None = None
    """Width of the network, instead of the size's."""
    depth: int | None = None
    """Number of layers, instead of the size's."""
    heads: int | None = None
    """Number of attention heads, instead of the size's."""
    length: int | None = None
    """Length of a sequence in tokens (default: 256, or with --init the length of that model)."""
    codec: str = "auto"
    """auto, text8, bytes, chars, bpe, bpe-4096, gpt2:FOLDER, a registered codec, or the folder of a model or of shards."""
    init: str | None = None
    """Start from the weights of a trained model (a folder or a bundled name), with its codec and the shape of its network;
    parts that --network adds (transformer:pointer=true) start untrained."""
    stages: str = ""
    """Methods to train first, each with its fraction of the run, separated by semicolons: ar=0.5 trains ar for the first half
    and continues from its weights."""
    segment: Segment = "windows"
    """windows (of the whole corpus as one stream) or documents (each line or record is a sequence that ends with EOS)."""
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


FREE_TO_CHANGE = frozenset(  # options that may change on resuming; the data's content is checked separately
    {"steps", "minutes", "eval_every", "eval_windows", "save_every", "keep", "compile", "data", "device_batch", "accumulate"}
    | {"init", "checkpoint_activations", "deterministic", "shard", "max_skipped_steps", "profile"}
)


def check_unchanged(options: TrainingOptions, saved: Mapping[str, Any], run: str) -> None:
    """Raise ValueError naming the first option that must not change on resuming and differs from the saved one."""
    now = asdict(options)
    for name in (field.name for field in fields(options)):
        if name not in FREE_TO_CHANGE and name in saved and saved[name] != now[name]:
            raise ValueError(
                f"the run in {run} has {name} {saved[name]}, not {now[name]}: "
                "resume with the same options, or use another folder"
            )

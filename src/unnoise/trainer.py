"""Training, in one readable file: any objective, any method.

Every random number of step i comes from (seed, i), so a run is fixed by its options; its state is weights, moments and the step
number. The state is one file, replaced atomically: a run that is killed at any moment goes on from its last checkpoint and ends
with the same bits as one that was not.
"""

import contextlib
import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn

from unnoise.data.corpus import corpus
from unnoise.data.source import Source
from unnoise.data.texts import PAD, Batch, Rows, Stream, Texts, step_generator
from unnoise.files import write_atomically
from unnoise.model import Model
from unnoise.objective import Objective
from unnoise.optimizer import Muon, split
from unnoise.reading import NetworkDenoiser
from unnoise.spelling import Words

STATE, LOG = "training.safetensors", "log.jsonl"
UNTOLD = 0.1  # the share of labels kept from the network


@dataclass(frozen=True)
class Options:
    """How to train. Give steps or minutes; learning rates rise over `warmup` and fall linearly over the last `cooldown` of
    the run, both as shares of it."""

    steps: int | None = None
    minutes: float | None = None
    batch: int = 8
    accumulate: int = 1
    seed: int = 0
    matrix_lr: float = 0.02
    other_lr: float = 0.003
    warmup: float = 0.02
    cooldown: float = 1.0
    clip: float = 1.0
    ema: float = 0.0
    eval_every: int | None = None
    eval_windows: int = 128
    save_every: int | None = None
    compile: bool = False

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.minutes is None):
            raise ValueError("give either steps or minutes, and not both")
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

    def progress(self, step: int, seconds: float) -> float:
        """How much of the run is done, 0 to 1."""
        if self.steps is not None:
            return step / self.steps
        assert self.minutes is not None
        return min(seconds / (60 * self.minutes), 1.0)

    def rate(self, progress: float) -> float:
        """The factor on the learning rates."""
        rise = min(1.0, (progress + 1e-3) / max(self.warmup, 1e-3))
        return rise * min(1.0, max(0.0, 1 - progress) / max(self.cooldown, 1e-9))


@dataclass
class Report:
    """What came of a run; bits are per character, of the bound on held-out text, with standard errors."""

    steps: int
    seconds: float
    tokens: int
    bits_before: float
    bits: float
    stderr: float
    finished: bool
    curve: list[tuple[int, float, float]] = field(default_factory=list)


class Watcher(Protocol):
    """Is told what happens during training; the command line draws a progress bar with it."""

    def step(self, step: int, progress: float, bits: float, tokens_per_second: float, seconds: float) -> None:
        """After each step."""

    def measured(self, step: int, bits: float, stderr: float) -> None:
        """After each evaluation."""


class NotANumber(ValueError):
    """The loss became infinite or NaN."""


class Run:
    """One training run: the model, its objective and optimiser, and where it stands."""

    def __init__(
        self,
        model: Model,
        source: Source | Tensor,
        options: Options,
        out: Path | None = None,
        objective: Objective | None = None,
    ):
        self.model, self.options, self.out = model, options, out
        self.train_texts, self.valid_texts = _texts(source, model)
        if isinstance(source, Source) and source.train_documents and model.words is None:
            model.words = Words.of(source.train_documents)
        quick = model.method.quick or model.method.objective
        self.objective = objective or quick(model.process)
        self.learned = nn.ModuleDict({"network": model.network, "objective": self.objective})
        matrices, others = split(self.learned)
        self.names = {id(weight): name for name, weight in (matrices | others).items()}
        self.optimizer = Muon(matrices.values(), others.values(), options.matrix_lr, options.other_lr)
        if options.compile:
            model.network.compile()
        self.average = (
            {name: weight.detach().clone() for name, weight in self.learned.named_parameters()} if options.ema else None
        )
        self.data = hashlib.sha1(self.train_texts.batch(8, 0, 0).x.numpy().tobytes()).hexdigest()  # tells data apart
        self.done, self.tokens, self.seconds = 0, 0, 0.0
        self.curve: list[tuple[int, float, float]] = []

    # ---- one step ----------------------------------------------------------------------------------------------------

    def step(self) -> float:
        """One update; returns the loss in nats per token."""
        options = self.options
        self.model.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        progress = options.progress(self.done, self.seconds)
        self.optimizer.rate = options.rate(progress)
        self.objective.advance(progress)
        total = 0.0
        for part in range(options.accumulate):
            batch = self.train_texts.batch(options.batch, options.seed, self.done * options.accumulate + part)
            tokens = int((batch.x != PAD).sum())
            self.tokens += tokens
            generator = self._generator(part)
            with self._precision():
                denoiser = self._conditioned(batch, generator)
                loss = self.objective(denoiser, batch.x.to(self.model.device), generator).sum() / tokens  # pyright: ignore[reportArgumentType]
            (loss / options.accumulate).backward()
            total += float(loss.detach()) / options.accumulate
        if not math.isfinite(total):
            raise NotANumber(f"the loss became {total} at step {self.done + 1}")
        nn.utils.clip_grad_norm_(self.learned.parameters(), options.clip)
        self.optimizer.step()
        if self.average is not None:
            for name, weight in self.learned.named_parameters():
                self.average[name].lerp_(weight.detach(), 1 - options.ema)
        self.done += 1
        return total

    def _conditioned(self, batch: Batch, generator: torch.Generator) -> NetworkDenoiser:
        """The denoiser told the labels, but for a tenth of them, so that it can also do without (for guidance)."""
        if batch.label is None or not self.model.shape.labels:
            return self.model.denoiser
        device = self.model.device
        told = torch.rand(batch.label.shape, generator=generator, device=device) >= UNTOLD
        return self.model.denoiser.condition(torch.where(told, batch.label.to(device), self.model.shape.labels))

    def _generator(self, part: int) -> torch.Generator:
        generator = step_generator(self.options.seed, self.done, 1 + part)
        device = self.model.device
        return generator if device.type == "cpu" else torch.Generator(device).manual_seed(generator.initial_seed())

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        """bfloat16 on CUDA; plain float32 elsewhere, where bfloat16 is slow."""
        return torch.autocast("cuda", torch.bfloat16) if self.model.device.type == "cuda" else contextlib.nullcontext()

    def measure(self) -> tuple[float, float]:
        """Bits per character on held-out text, and the standard error."""
        with self.averaged():
            return self.model.bits_per_char(self.valid_texts, self.options.eval_windows, 2, self.options.seed)

    @contextlib.contextmanager
    def averaged(self) -> Iterator[None]:
        """The model with its averaged weights, if there are any, for as long as this lasts."""
        if self.average is None:
            yield
            return
        kept = {name: weight.detach().clone() for name, weight in self.learned.named_parameters()}
        try:
            self._put(self.average)
            yield
        finally:
            self._put(kept)

    @torch.no_grad()
    def _put(self, values: dict[str, Tensor]) -> None:
        for name, weight in self.learned.named_parameters():
            weight.copy_(values[name])

    # ---- checkpoints -------------------------------------------------------------------------------------------------

    def save(self) -> None:
        """The state, then the model; each file atomically."""
        if self.out is None:
            return
        tensors: dict[str, Tensor] = {f"weight/{name}": weight for name, weight in self.learned.named_parameters()}
        for weight, state in self.optimizer.state.items():
            for kind, value in state.items():
                tensors[f"{kind}/{self.names[id(weight)]}"] = value
        for name, value in (self.average or {}).items():
            tensors[f"average/{name}"] = value
        about = {
            "step": self.done,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "options": asdict(self.options),
            "method": self.model.method.name,
            "data": self.data,
            "curve": self.curve,
        }
        plain = {name: value.detach().cpu().contiguous().clone() for name, value in tensors.items()}
        write_atomically(self.out / STATE, save(plain, metadata={"unnoise": json.dumps(about)}))
        with self.averaged():
            self.model.save(self.out)

    def resume(self) -> bool:
        """Go on from the state in `out`, if there is one."""
        if self.out is None or not (self.out / STATE).exists():
            return False
        about, tensors = read_state(self.out / STATE)
        if about["method"] != self.model.method.name:
            raise ValueError(f"{self.out} holds a run of {about['method']}, not of {self.model.method.name}")
        if about.get("data", self.data) != self.data:
            raise ValueError(f"the run in {self.out} read other data: go on with the same, or choose another folder")
        try:
            self._put({name: tensors[f"weight/{name}"] for name, _ in self.learned.named_parameters()})
        except (KeyError, RuntimeError) as error:
            raise ValueError(f"the run in {self.out} has a network of another shape: resume with the same options") from error
        by_name = dict(self.learned.named_parameters())
        for key, value in tensors.items():
            kind, _, name = key.partition("/")
            if kind in ("first", "second", "count"):
                self.optimizer.state[by_name[name]][kind] = value.to(by_name[name].device)
            elif kind == "average" and self.average is not None:
                self.average[name] = value.to(by_name[name].device)
        self.done, self.tokens, self.seconds = int(about["step"]), int(about["tokens"]), float(about["seconds"])
        self.curve = [tuple(point) for point in about["curve"]]
        _cut_log(self.out / LOG, self.done)
        return True

    # ---- the whole run -----------------------------------------------------------------------------------------------

    def go(self, watcher: Watcher | None = None, stop: Callable[[], bool] = lambda: False) -> Report:
        """Train to the end, or until stop() says so; saves at the end in either case."""
        options = self.options
        if not self.curve:  # a fresh run
            if self.out is not None:
                (self.out / LOG).unlink(missing_ok=True)
            self._measure_now(watcher)
        start = time.monotonic() - self.seconds
        smooth, last_save = None, self.done
        while options.progress(self.done, self.seconds) < 1 and not stop():
            nats = self.step()
            self.seconds = time.monotonic() - start
            bits = nats / math.log(2) / self.train_texts.characters
            smooth = bits if smooth is None else 0.95 * smooth + 0.05 * bits
            progress = options.progress(self.done, self.seconds)
            self._log(step=self.done, loss_bits=bits, rate=self.optimizer.rate, seconds=round(self.seconds, 3))
            if watcher:
                watcher.step(self.done, progress, smooth, self.tokens / max(self.seconds, 1e-9), self.seconds)
            pause = time.monotonic()
            if options.eval_every and self.done % options.eval_every == 0 and progress < 1:
                self._measure_now(watcher)
            if options.save_every and self.done - last_save >= options.save_every:
                self.save()
                last_save = self.done
            start += time.monotonic() - pause  # measuring and saving are not training time
        finished = options.progress(self.done, self.seconds) >= 1
        if finished and self.curve[-1][0] != self.done:
            self._measure_now(watcher)
        self.model.network.eval()
        self.model.notes = {"steps": self.done, "seconds": round(self.seconds, 1), "valid_bits_per_char": self.curve[-1][1]}
        self.save()
        if finished and self.average is not None:
            self._put(self.average)
        before, after = self.curve[0], self.curve[-1]
        return Report(self.done, self.seconds, self.tokens, before[1], after[1], after[2], finished, self.curve)

    def _measure_now(self, watcher: Watcher | None) -> None:
        bits, error = self.measure()
        self.curve.append((self.done, bits, error))
        self._log(step=self.done, valid_bits_per_char=bits, stderr=error)
        if watcher:
            watcher.measured(self.done, bits, error)

    def _log(self, **values: float) -> None:
        if self.out is not None:
            self.out.mkdir(parents=True, exist_ok=True)
            with open(self.out / LOG, "a") as file:
                file.write(json.dumps(values) + "\n")


def train(
    model: Model,
    data: str | Source | Tensor,
    steps: int | None = None,
    minutes: float | None = None,
    out: str | Path | None = None,
    objective: Objective | None = None,
    watcher: Watcher | None = None,
    **options: Any,
) -> Report:
    """Train a model on a corpus (a name, a path, a Corpus), on a stream of tokens [n], or on texts [N, L] padded with −1.

    See `Options` for the rest. objective: one of your own instead of the method's.
    """
    source = corpus(data) if isinstance(data, str) else data
    run = Run(model, source, Options(steps=steps, minutes=minutes, **options), Path(out) if out else None, objective)
    return run.go(watcher)


def _texts(source: Source | Tensor, model: Model) -> tuple[Texts, Texts]:
    """Texts to train on, and held-out ones."""
    if isinstance(source, Tensor):
        cut = max(len(source) * 95 // 100, len(source) - 100_000)
        if source.dim() == 2:
            return Rows.of(source[:cut]), Rows.of(source[cut:])
        return Stream(source[:cut], model.length), Stream(source[cut:], model.length)
    held_out = next(name for name in ("valid", "test", "train") if name in source.splits)
    train_texts, valid_texts = (
        source.texts(model.codec, name, model.length, model.process.variable) for name in ("train", held_out)
    )
    return train_texts, valid_texts


def read_state(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A checkpoint: what it says of the run, and its tensors."""
    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})["unnoise"])
        return about, load_file(path)
    except Exception as error:
        raise ValueError(f"the checkpoint {path} is damaged or cut short ({error})") from error


def _cut_log(path: Path, step: int) -> None:
    """Drop what a killed run logged after its last checkpoint."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
    write_atomically(path, "".join(kept).encode())

"""Training: any objective, any method, step by step.

Every random number of text r of step i comes from (seed, i, r), so a run is fixed by its options, whatever the number of
processes that share its batches; its state is weights, moments and the step number. The state is one file, replaced atomically:
a run that is killed at any moment goes on from its last checkpoint and, if it is counted in steps, ends with the same bits as
one that was not.
"""

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from unnoise import distributed
from unnoise.data.corpus import source_of
from unnoise.data.source import Source
from unnoise.files import locked
from unnoise.model.likelihood import bits_per_char
from unnoise.model.model import Model
from unnoise.objective import Objective
from unnoise.process.state import PAD
from unnoise.rng import RowGenerator, seed_of
from unnoise.spelling import Words, can_correct
from unnoise.training.average import WeightAverage, put_parameters
from unnoise.training.callback import LOG, Callback, Evaluation, JsonLog, StepReport
from unnoise.training.checkpoint import STATE, has_state, load_state, save_state
from unnoise.training.data import texts_of
from unnoise.training.learning_rate import learning_rate_factor
from unnoise.training.loss import BatchLoss, averaged_over_processes, without_averaging
from unnoise.training.optimizer import optimizers
from unnoise.training.options import MINUTES, TrainingKeywords, TrainingOptions

EVALUATION_DRAWS = 2
DIVERGED = 1e8  # nats a token, or bits a character, beyond which a run has come apart


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
    loss: str = "fast"
    curve: list[tuple[int, float, float]] = field(default_factory=list)


class NotANumber(ValueError):
    """The loss became infinite or NaN."""


def check_finite(value: float, words: str) -> None:
    """Raise NotANumber if training has come apart."""
    if not math.isfinite(value) or value > DIVERGED:
        raise NotANumber(words)


class TrainingRun:
    """One training run: the model, its objective and optimiser, and where it stands."""

    def __init__(
        self,
        model: Model,
        source: Source | Tensor,
        options: TrainingOptions,
        out: Path | None = None,
        objective: Objective | None = None,
        labels: Tensor | None = None,
    ):
        self.model, self.options, self.out, self.device = model, options, out, model.device
        if distributed.world() > options.batch * options.accumulate:
            raise ValueError(
                f"{distributed.world()} processes cannot share a batch of {options.batch * options.accumulate} texts"
            )
        self.source = source
        self.train_texts, self.valid_texts = texts_of(source, model, labels)
        if isinstance(source, Source) and source.train_documents and model.words is None and can_correct(model.process):
            model.words = Words.of(source.train_documents)  # counted when it is first used or saved
        self.objective = objective or _objective(model, options)
        self.loss = "own" if objective else options.loss if model.method.fast_objective else "paper"
        loss = BatchLoss(model, self.objective, options.dropout)
        self.learned = loss.learned
        self.optimizers = optimizers(self.learned, options)
        if options.compile:
            if model.process.variable_length:
                name = model.method.name
                raise ValueError(
                    f"{name} reads texts of every length, each of which torch would compile: train without compile"
                )
            model.network.compile()
        self.batch_loss = averaged_over_processes(loss)
        self.average = WeightAverage(self.learned, options.ema) if options.ema else None
        first = self.train_texts.batch(torch.arange(8), 0).x
        self.data_digest = hashlib.sha1(first.numpy().tobytes()).hexdigest()  # tells data apart
        self.done, self.tokens, self.seconds = 0, 0, 0.0
        self.curve: list[tuple[int, float, float]] = []
        self.callbacks: list[Callback] = [] if out is None or distributed.rank() > 0 else [JsonLog(out)]
        self.set_schedules()

    def set_schedules(self) -> None:
        """Let the learning rates follow the progress of the run, from where it stands."""
        self.schedules = [
            LambdaLR(optimizer, lambda _: learning_rate_factor(self.progress, self.options)) for optimizer in self.optimizers
        ]

    @property
    def progress(self) -> float:
        """How much of the run is done, 0 to 1."""
        if self.options.steps is not None:
            return self.done / self.options.steps
        return min(self.seconds / (60 * (self.options.minutes or MINUTES)), 1.0)

    # ---- one step ----------------------------------------------------------------------------------------------------

    def step(self) -> float:
        """One update; returns the loss in nats per token."""
        options, device = self.options, self.device
        self.model.network.train()
        self.learned.zero_grad(set_to_none=True)
        self.objective.set_progress(self.progress)
        count = options.batch * options.accumulate
        rows = distributed.share(count)
        at_once = -(-options.batch // distributed.world())
        parts = [(part, self.train_texts.batch(self.done * count + part, options.seed)) for part in rows.split(at_once)]
        tokens = int(distributed.total(sum(int((batch.x != PAD).sum()) for _, batch in parts), device))
        nats = 0.0
        for part, batch in parts:
            generator = RowGenerator(seed_of(options.seed, self.done), part.to(device), count)
            label = None if batch.label is None else batch.label.to(device)
            with without_averaging(self.batch_loss, part is parts[-1][0]):
                loss = self.batch_loss(batch.x.to(device), label, generator).sum()
                (loss * (distributed.world() / tokens)).backward()
            nats += float(loss.detach())
        self.tokens += tokens
        total = distributed.total(nats, device) / tokens
        check_finite(total, f"the loss became {total:.3g} at step {self.done + 1}")
        nn.utils.clip_grad_norm_(self.learned.parameters(), options.clip)
        for optimizer in self.optimizers:
            optimizer.step()
        if self.average is not None:
            self.average.update()
        self.objective.after_step()
        self.done += 1
        for schedule in self.schedules:
            schedule.step()
        return total

    def evaluate(self) -> tuple[float, float]:
        """Bits per character on held-out text, and the standard error; of the averaged weights, where there are any."""
        options = self.options
        with self.average.applied() if self.average is not None else contextlib.nullcontext():
            found = bits_per_char(self.model, self.valid_texts, options.eval_windows, EVALUATION_DRAWS, options.seed)
            return found.bits, found.stderr

    # ---- checkpoints -------------------------------------------------------------------------------------------------

    def description(self) -> dict[str, Any]:
        """What a checkpoint says of the run."""
        return {
            "step": self.done,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "options": asdict(self.options),
            "method": self.model.method.name,
            "loss": self.loss,
            "data_digest": self.data_digest,
            "curve": self.curve,
        }

    def save(self) -> None:
        """The state, then the model; each file atomically, by one process."""
        if self.out is None or distributed.rank() > 0:
            return
        save_state(self, self.out / STATE)
        with self.average.applied() if self.average is not None else contextlib.nullcontext():
            self.model.save(self.out)
        for callback in self.callbacks:
            callback.on_save(self.out)

    def resume(self) -> bool:
        """Go on from the state in `out`, if there is one."""
        if self.out is None or not has_state(self.out):
            return False
        load_state(self, self.out / STATE)
        self.set_schedules()
        return True

    # ---- the whole run -----------------------------------------------------------------------------------------------

    def run(self, callbacks: Sequence[Callback] = (), stop: Callable[[], bool] = lambda: False) -> Report:
        """Train to the end, or until stop() says so; saves at the end in either case. Nobody else may write into `out`."""
        with locked(self.out) if self.out is not None and distributed.rank() == 0 else contextlib.nullcontext():
            return self._run(callbacks, stop)

    def _run(self, callbacks: Sequence[Callback], stop: Callable[[], bool]) -> Report:
        options = self.options
        if distributed.rank() == 0:
            self.callbacks += callbacks
        if not self.curve:  # a fresh run
            if self.out is not None and distributed.rank() == 0:
                (self.out / LOG).unlink(missing_ok=True)
            self._evaluate_now()
        start = time.monotonic() - self.seconds
        smooth, last_save = None, self.done
        while (progress := self.progress) < 1 and not distributed.total(stop(), self.device):
            rate = learning_rate_factor(progress, options)
            nats = self.step()
            self.seconds = distributed.first_says(time.monotonic() - start, self.device)
            bits = nats / math.log(2) / self.train_texts.characters
            smooth = bits if smooth is None else 0.95 * smooth + 0.05 * bits
            progress = self.progress
            speed = self.tokens / max(self.seconds, 1e-9)
            report = StepReport(self.done, progress, bits, smooth, rate, speed, self.seconds)
            for callback in self.callbacks:
                callback.on_step(report)
            pause = time.monotonic()
            if options.eval_every and self.done % options.eval_every == 0 and progress < 1:
                self._evaluate_now()
            if options.save_every and self.done - last_save >= options.save_every:
                self.save()
                last_save = self.done
            start += time.monotonic() - pause  # measuring and saving are not training time
        finished = self.progress >= 1
        if finished and self.curve[-1][0] != self.done:
            self._evaluate_now()
        self.model.network.eval()
        self.model.notes = {
            "steps": self.done,
            "seconds": round(self.seconds, 1),
            "loss": self.loss,
            "valid_bits_per_char": self.curve[-1][1],
        }
        self.save()
        if finished and self.average is not None:
            put_parameters(self.learned, self.average.weights)
        before, after = self.curve[0], self.curve[-1]
        return Report(self.done, self.seconds, self.tokens, before[1], after[1], after[2], finished, self.loss, self.curve)

    def _evaluate_now(self) -> None:
        bits, error = self.evaluate()
        check_finite(bits, f"the bound on held-out text became {bits:.3g} bits at step {self.done}")
        self.curve.append((self.done, bits, error))
        for callback in self.callbacks:
            callback.on_evaluation(Evaluation(self.done, bits, error))


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


def _objective(model: Model, options: TrainingOptions) -> Objective:
    method = model.method
    return (method.fast_objective if options.loss == "fast" and method.fast_objective else method.objective)(model.process)

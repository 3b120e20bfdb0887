"""The training loop, for any method and objective.

Every random number of sequence r in step i is derived from (seed, i, r). The options therefore determine a run, whatever the
number of processes that share its batches. Its state is weights, moments and the step number. A run that is killed resumes from
its last checkpoint and, if it is counted in steps, ends with the same bits as an uninterrupted run.
"""

import contextlib
import hashlib
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from unnoise import distributed
from unnoise.data.texts import Source
from unnoise.files import locked
from unnoise.model.io import save as save_model
from unnoise.model.likelihood import bits_per_char
from unnoise.model.model import Model
from unnoise.network.network_base import raise_to_float32
from unnoise.objective import Objective
from unnoise.process.state import PAD
from unnoise.registry import find, registered
from unnoise.rng import RowGenerator, seed_of
from unnoise.training.callbacks import LOG, Callback, Evaluation, JsonLog, Profiler, StepReport
from unnoise.training.checkpointing import CheckpointWriter, collect_state, has_state, load_state
from unnoise.training.costs import flops_per_token, product_flops
from unnoise.training.datasets import load_datasets
from unnoise.training.optim import WeightAverage, learning_rate_factor, optimizers, put_parameters
from unnoise.training.parallel import (
    BatchLoss,
    RecomputedBlocks,
    average_unsharded,
    check_shares,
    clip_gradients,
    deterministic_kernels,
    gathered_weights,
    over_processes,
    product_dtype,
    retained_memory,
    trim_memory,
    whole,
    without_averaging,
)
from unnoise.training.training_options import MINUTES, TrainingOptions

DIVERGED = 1e8  # nats per token, or bits per character, above which a run has diverged
EVALUATION_DRAWS = 2


@dataclass
class Report:
    """Result of a run.

    bits_before, bits: held-out bits per character before and after.
    stderr: Monte Carlo standard error of bits, 0 if the value is exact.
    text_stderr: standard error of bits over the population of sequences, from the spread of the measured ones; None if this
        call measured nothing.
    loss: paper, fast, or own (an objective passed by the caller).
    curve: (step, bits, stderr) of each evaluation.
    """

    steps: int
    seconds: float
    tokens: int
    bits_before: float
    bits: float
    stderr: float
    finished: bool
    loss: str = "paper"
    curve: list[tuple[int, float, float]] = field(default_factory=list)
    text_stderr: float | None = None


class DivergedError(ValueError):
    """Error raised when the loss becomes infinite, NaN or huge."""


def is_finite_loss(value: float) -> bool:
    """Return whether a loss or bound is finite and not huge."""
    return math.isfinite(value) and value <= DIVERGED


class TrainingRun:
    """A training run: the model, its objective, its optimizers and its progress."""

    def __init__(
        self,
        model: Model,
        source: Source | Tensor,
        options: TrainingOptions,
        out: Path | None = None,
        *,
        objective: Objective | None = None,
        labels: Tensor | None = None,
    ):
        self.model, self.options, self.out, self.device = model, options, out, model.device
        raise_to_float32(model.network)
        check_shares(options)
        self.source = source
        self.train_texts, self.valid_texts = load_datasets(source, model, labels)
        fast = model.method.fast_objective if options.loss == "fast" else None
        self.objective = objective or (fast or model.method.objective)(model.process)
        self.loss = "own" if objective else options.loss if model.method.fast_objective else "paper"
        dtype = product_dtype(options.precision, self.device)
        loss = BatchLoss(model, self.objective, dtype, options.dropout)
        self.learned = loss.learned
        self.flops_per_token = flops_per_token(model.network)
        self.recomputed = RecomputedBlocks(model.network) if options.checkpoint_activations else None
        if options.compile:
            if model.process.variable_length:
                raise ValueError(
                    f"{model.method.name} trains on sequences of many lengths, and torch.compile would recompile for each: "
                    "train without compile"
                )
            model.network.compile()
        self.batch_loss = over_processes(loss, options.shard, dtype)
        process_lr = options.process_lr or model.method.process_lr
        self.optimizers = optimizers(self.learned, replace(options, process_lr=process_lr))
        self.average = WeightAverage(self.learned, options.ema_decay) if options.ema_decay else None
        first = self.train_texts.batch(torch.arange(8), 0).x
        self.data_digest = hashlib.sha1(first.numpy().tobytes()).hexdigest()  # tells data apart
        self.done, self.tokens, self.seconds = 0, 0, 0.0
        self.bad, self.grad_norm = 0, 0.0  # consecutive skipped steps; norm of the last gradient
        self.curve: list[tuple[int, float, float]] = []
        self.text_error: float | None = None  # text_stderr of the last evaluation
        self.callbacks: list[Callback] = [] if out is None or distributed.rank() > 0 else [JsonLog(out)]
        self.checkpoints = None if out is None else CheckpointWriter(out, options.keep)
        self.damaged = ""  # why newer checkpoints could not be read on resuming
        self.set_schedules()

    def set_schedules(self) -> None:
        """Set the learning rate schedules from the current progress."""
        self.schedules = [
            LambdaLR(optimizer, lambda _: learning_rate_factor(self.progress, self.options)) for optimizer in self.optimizers
        ]

    @property
    def progress(self) -> float:
        """Fraction of the run that is done."""
        if self.options.steps is not None:
            return self.done / self.options.steps
        return min(self.seconds / (60 * (self.options.minutes or MINUTES)), 1.0)

    # ---- one step ----------------------------------------------------------------------------------------------------

    def step(self) -> float:
        """Update the weights and return the loss in nats per token.

        The update is skipped if the loss or gradient is not finite.
        """
        options, device = self.options, self.device
        self.model.network.train()
        self.learned.zero_grad(set_to_none=True)
        self.objective.set_progress(self.progress if self.options.curriculum else 1.0)
        parts = [(rows, self.train_texts.batch(self.done * options.batch + rows, options.seed)) for rows in self.parts()]
        tokens = int(distributed.all_reduce(sum(int((batch.x != PAD).sum()) for _, batch in parts), device))
        nats = 0.0
        for rows, batch in parts:
            generator = RowGenerator(seed_of(options.seed, self.done), rows.to(device), options.batch)
            label = None if batch.label is None else batch.label.to(device)
            recomputed = contextlib.nullcontext() if self.recomputed is None else self.recomputed.active()
            averaging = without_averaging(self.batch_loss, rows is parts[-1][0])
            with deterministic_kernels(options.deterministic), recomputed, averaging:
                loss = self.batch_loss(batch.x.to(device), label, generator).sum()
                (loss * (distributed.world() / tokens)).backward()
            nats += float(loss.detach())
        self.tokens += tokens
        total = distributed.all_reduce(nats, device) / tokens
        if options.shard and distributed.world() > 1:
            average_unsharded(self.learned)
        self.grad_norm = clip_gradients(self.learned, options.max_grad_norm)
        self.bad = 0 if is_finite_loss(total) and math.isfinite(self.grad_norm) else self.bad + 1
        if self.bad > options.max_skipped_steps:
            raise DivergedError(
                f"the loss became {total:.3g} with a gradient of norm {self.grad_norm:.3g} at step {self.done + 1}"
            )
        if not self.bad:
            for optimizer in self.optimizers:
                optimizer.step()
            if self.average is not None:
                self.average.update()
            self.objective.after_step()
        self.done += 1
        trim_memory(self.done, device)
        for schedule in self.schedules:
            schedule.step()
        return total

    def parts(self) -> list[Tensor]:
        """Return the rows of the batch for this process, in the parts it evaluates at once: [n] long each."""
        rows = distributed.rank_rows(self.options.batch)
        most = -(-self.options.batch // distributed.world())  # the largest share of a process
        at_once = self.options.device_batch or -(-most // (self.options.accumulate or 1))
        return list(rows.split(at_once))

    def evaluate(self) -> tuple[float, float]:
        """Return the held-out bits per character and standard error, with the averaged weights if there are any."""
        options = self.options
        averaged = self.average.applied() if self.average is not None else contextlib.nullcontext()
        with averaged, gathered_weights(self.model.network), deterministic_kernels(options.deterministic):
            found = bits_per_char(self.model, self.valid_texts, options.eval_windows, EVALUATION_DRAWS, options.seed)
            self.text_error = found.text_stderr
            return found.bits, found.stderr

    # ---- checkpoints -------------------------------------------------------------------------------------------------

    def description(self) -> dict[str, Any]:
        """Return the metadata of a checkpoint."""
        return {
            "step": self.done,
            "tokens": self.tokens,
            "seconds": self.seconds,
            "options": asdict(self.options),
            "method": self.model.method.name,
            "loss": self.loss,
            "data_digest": self.data_digest,
            "curve": self.curve,
            "bad": self.bad,
            "averaged": 0 if self.average is None else self.average.steps,
        }

    def save(self) -> None:
        """Write a checkpoint in the background, each process its part, then the model by the first process."""
        for callback in self.callbacks:
            callback.before_save(self)
        if self.out is None or self.checkpoints is None:
            return
        self.checkpoints.begin(collect_state(self), self.description())
        with self.average.applied() if self.average is not None else contextlib.nullcontext():
            weights = whole(self.model.weights())
            if distributed.rank() == 0:
                save_model(self.model, self.out, weights)
        for callback in self.callbacks:
            callback.on_save(self.out)

    def resume(self) -> bool:
        """Resume from the newest intact checkpoint in `out`; return False if there is none."""
        if self.out is None or not has_state(self.out):
            return False
        self.damaged = load_state(self, self.out)
        self.set_schedules()
        return True

    # ---- the whole run -----------------------------------------------------------------------------------------------

    def run(self, callbacks: Sequence[Callback] = (), stop: Callable[[], bool] = lambda: False) -> Report:
        """Train to the end, or until stop() returns True, and save. No other process may write to `out`."""
        with locked(self.out) if self.out is not None and distributed.rank() == 0 else contextlib.nullcontext():
            if distributed.rank() == 0:
                self.callbacks += [*(find("callback", name)() for name in registered("callback")), *callbacks]
                if self.options.profile and self.out is not None:
                    self.callbacks.append(Profiler(self.out, self.options.profile))
            try:
                with retained_memory(self.device):
                    return self._run(stop)
            finally:
                for callback in self.callbacks:
                    callback.on_end()

    def _run(self, stop: Callable[[], bool]) -> Report:
        if not self.curve:  # a fresh run
            if self.out is not None and distributed.rank() == 0:
                (self.out / LOG).unlink(missing_ok=True)
            self._evaluate_now()
        self._steps(stop)
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
        if self.checkpoints is not None:
            self.checkpoints.finish()
        if finished and self.average is not None:
            put_parameters(self.learned, self.average.weights)
        (_, before, _), (_, after, error) = self.curve[0], self.curve[-1]
        return Report(
            steps=self.done,
            seconds=self.seconds,
            tokens=self.tokens,
            bits_before=before,
            bits=after,
            stderr=error,
            finished=finished,
            loss=self.loss,
            curve=self.curve,
            text_stderr=self.text_error,
        )

    def _steps(self, stop: Callable[[], bool]) -> None:
        """Run steps, evaluations and checkpoints until the run is done or stop() returns True."""
        options = self.options
        peak = product_flops(self.device, product_dtype(options.precision, self.device)) * distributed.world()
        start = time.monotonic() - self.seconds
        smooth, last_save = None, self.done
        while (progress := self.progress) < 1 and not distributed.all_reduce(stop(), self.device):
            rate = learning_rate_factor(progress, options)
            nats = self.step()
            self.seconds = distributed.broadcast_number(time.monotonic() - start, self.device)
            bits = nats / math.log(2) / self.train_texts.characters
            if not self.bad:
                smooth = bits if smooth is None else 0.95 * smooth + 0.05 * bits
            speed = self.tokens / max(self.seconds, 1e-9)
            report = StepReport(
                step=self.done,
                progress=self.progress,
                loss_bits=bits,
                smooth_bits=math.nan if smooth is None else smooth,
                rate=rate,
                grad_norm=self.grad_norm,
                tokens_per_second=speed,
                utilisation=speed * self.flops_per_token / peak,
                seconds=self.seconds,
                skipped=bool(self.bad),
            )
            for callback in self.callbacks:
                callback.on_step(report)
            pause = time.monotonic()
            if options.eval_every and self.done % options.eval_every == 0 and report.progress < 1:
                self._evaluate_now()
            if self.checkpoints is not None:
                self.checkpoints.poll()
            if options.save_every and self.done - last_save >= options.save_every and not self.bad:
                self.save()
                last_save = self.done
            start += time.monotonic() - pause  # evaluations and checkpoints are not training time

    def _evaluate_now(self) -> None:
        bits, error = self.evaluate()
        if not is_finite_loss(bits):
            raise DivergedError(f"the bound on held-out text became {bits:.3g} bits at step {self.done}")
        self.curve.append((self.done, bits, error))
        for callback in self.callbacks:
            callback.on_evaluation(Evaluation(self.done, bits, error))

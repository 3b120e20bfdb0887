"""What is shown in a terminal: a chain emerging, a progress bar while training."""

import sys
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from unnoise.data.codec import BLANK
from unnoise.model.generate import Step
from unnoise.training.callback import Callback, Evaluation, StepReport


def styled(step: Step) -> Text:
    """A canvas: masks dim, what has just come or changed in green."""
    text = Text()
    for token, fresh in zip(step.tokens, step.fresh, strict=True):
        text.append(token, style=("green" if fresh else "dim") if token.startswith(BLANK) else "bold green" if fresh else "")
    return text


def watch(steps: Sequence[Step], seconds: float = 6.0, console: Console | None = None) -> None:
    """Play a chain on a terminal; elsewhere print five of its moments."""
    console = console or Console()
    if console.is_terminal:
        with Live(console=console, refresh_per_second=30, transient=True) as live:
            for step in steps:
                live.update(Panel(styled(step), title=f"t = {step.t:.2f}", width=min(console.width, 100)))
                time.sleep(seconds / len(steps))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        step = steps[round(share * (len(steps) - 1))]
        console.print(Panel(styled(step), title=f"t = {step.t:.2f}", title_align="left", width=min(console.width, 100)))


def duration(seconds: float) -> str:
    """Minutes and seconds, or hours and minutes."""
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}" if whole >= 3600 else f"{whole // 60}:{whole % 60:02d}"


class ProgressBar(Callback):
    """Training progress: a bar with loss, speed and time left on a terminal, plain lines elsewhere; always on stderr."""

    def __init__(self, unit: str = "character") -> None:
        self.unit = unit
        self.console = Console(stderr=True)
        self.progress = Progress(
            TextColumn("step {task.fields[step]}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %  loss {task.fields[bits]:.3f} bits"),
            TextColumn("{task.fields[speed]:,.0f} tokens/s  {task.fields[left]} left"),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self.task = self.progress.add_task("train", total=1.0, step=0, bits=0.0, speed=0.0, left="?")
        self.left = "?"

    def __enter__(self) -> "ProgressBar":
        self.progress.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.__exit__(None, None, None)

    def on_step(self, report: StepReport) -> None:
        self.left = duration(report.seconds / report.progress - report.seconds) if report.progress > 0 else "?"
        self.progress.update(
            self.task,
            completed=report.progress,
            step=report.step,
            bits=report.smooth_bits,
            speed=report.tokens_per_second,
            left=self.left,
        )

    def on_evaluation(self, evaluation: Evaluation) -> None:
        line = f"step {evaluation.step:>6}: {evaluation.bits:.3f} ± {evaluation.stderr:.3f} bits per {self.unit}, held out"
        if self.console.is_terminal:
            self.progress.console.print(line)
        else:
            print(f"{line}, {self.left} left", file=sys.stderr, flush=True)

"""Terminal output: a live denoising chain, and a progress bar for training."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.text import Text

from unnoise.data.codec import BLANK
from unnoise.model.error_bars import with_error
from unnoise.model.generate import Step
from unnoise.training.callbacks import Callback, Evaluation, StepReport

WIDTH = 100  # largest width of a chain in columns
SHORTEST = 1 / 60  # seconds for each state of a fast chain


def styled(step: Step, columns: int) -> Text:
    """Return a state of a chain, with dim masks and changed tokens in green.

    Lines are cut by position, not between words, so that no letter moves when another one changes.
    """
    text, at = Text(), 0
    for token, fresh in zip(step.tokens, step.fresh, strict=True):
        style = ("green" if fresh else "dim") if token.startswith(BLANK) else "bold green" if fresh else ""
        for character in token:
            if at == columns:
                text.append("\n")
                at = 0
            text.append(character, style)
            at = 0 if character == "\n" else at + 1
    return text


def panel(step: Step, console: Console) -> Panel:
    """Return a state in a frame with its time."""
    width = min(console.width, WIDTH)
    return Panel(styled(step, width - 4), title=f"t = {step.t:.2f}", title_align="left", width=width)


class LiveChain:
    """Live view of a chain on a terminal, followed by five of its states.

    Pass it as `on_step` to `Model.generate`. `steps` contains all states so far.
    """

    def __init__(self, console: Console | None = None):
        self.console = console or Console()
        self.live = Live(console=self.console, refresh_per_second=30, transient=True) if self.console.is_terminal else None
        self.steps: list[Step] = []

    def __enter__(self) -> "LiveChain":
        if self.live is not None:
            self.live.start()
        return self

    def __call__(self, step: Step) -> None:
        self.steps.append(step)
        if self.live is not None:
            self.live.update(panel(step, self.console))
            time.sleep(SHORTEST)

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()
        for share in (0.0, 0.25, 0.5, 0.75, 1.0) if self.steps else ():
            self.console.print(panel(self.steps[round(share * (len(self.steps) - 1))], self.console))


def duration(seconds: float) -> str:
    """Return a duration as minutes:seconds or hours:minutes:seconds."""
    whole = max(0, round(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}" if whole >= 3600 else f"{whole // 60}:{whole % 60:02d}"


@contextmanager
def share_bar(name: str) -> Iterator[Callable[[float], None]]:
    """Yield a function that shows a share of the work from 0 to 1 as a bar on stderr, on a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(name, total=1.0)
        yield lambda share: progress.update(task, completed=share)


class ProgressBar(Callback):
    """Training progress on stderr: a bar with loss, speed and time left on a terminal, otherwise plain lines."""

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
        line = f"step {evaluation.step:>6}: {with_error(evaluation.bits, evaluation.stderr)} bits per {self.unit}, held out"
        if self.console.is_terminal:
            self.progress.console.print(line)
        else:
            print(f"{line}, {self.left} left", file=sys.stderr, flush=True)

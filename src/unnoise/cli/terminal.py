"""Terminal output: a live view of a denoising chain, columns of texts, and progress bars."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from unnoise.cli.command_base import printable
from unnoise.data.codec import BLANK
from unnoise.training.callbacks import Callback, Evaluation, StepReport

if TYPE_CHECKING:
    from unnoise.data.prepare import PrepareReport
    from unnoise.model.generate import Step

WIDTH = 100  # largest width of a chain in columns
SHORTEST = 1 / 60  # seconds for each state of a fast chain


def styled(step: "Step", columns: int) -> Text:
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


def panel(step: "Step", console: Console) -> Panel:
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

    def __call__(self, step: "Step") -> None:
        self.steps.append(step)
        if self.live is not None:
            self.live.update(panel(step, self.console))
            time.sleep(SHORTEST)

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()
        for share in (0.0, 0.25, 0.5, 0.75, 1.0) if self.steps else ():
            self.console.print(panel(self.steps[round(share * (len(self.steps) - 1))], self.console))


def print_columns(names: Sequence[str], texts: Sequence[Sequence[str]]) -> None:
    """Print texts with a column for each model and a row for each text."""
    table = Table(box=SIMPLE_HEAD, show_lines=True, expand=True, pad_edge=False)
    for name in names:
        table.add_column(Text(name), ratio=1, overflow="fold")
    for row in zip(*texts, strict=True):
        table.add_row(*(Text("\n".join(map(printable, text.split("\n")))) for text in row))
    Console().print(table)


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


class Bar:
    """Progress on stderr: a bar on a terminal, plain lines elsewhere."""

    def __init__(self) -> None:
        self.console = Console(stderr=True)
        columns = BarColumn(), TextColumn("{task.percentage:>3.0f} %  {task.description}")
        self.progress = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.task = self.progress.add_task("", total=1.0)

    def __enter__(self) -> Self:
        self.progress.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.__exit__(None, None, None)

    def say(self, line: str) -> None:
        """Print a line, above the bar if there is one."""
        if self.console.is_terminal:
            self.progress.console.print(line, highlight=False)
        else:
            print(line, file=sys.stderr, flush=True)


class ProgressBar(Bar, Callback):
    """Progress of training: loss, speed and time left, and the result of each evaluation."""

    def __init__(self, unit: str = "character") -> None:
        super().__init__()
        self.unit, self.left = unit, "?"

    def on_step(self, report: StepReport) -> None:
        self.left = duration(report.seconds / report.progress - report.seconds) if report.progress > 0 else "?"
        speed = f"{report.tokens_per_second:,.0f} tokens/s  {self.left} left"
        words = f"step {report.step}  loss {report.smooth_bits:.3f} bits  {speed}"
        self.progress.update(self.task, completed=report.progress, description=words)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        from unnoise.model.error_bars import with_error

        line = f"step {evaluation.step:>6}: {with_error(evaluation.bits, evaluation.stderr)} bits per {self.unit}, held out"
        self.say(line if self.console.is_terminal else f"{line}, {self.left} left")


class PrepareBar(Bar):
    """Progress of tokenization: tokens, speed and time left."""

    EVERY = 10.0  # seconds between plain lines

    def __init__(self) -> None:
        super().__init__()
        self.begun: PrepareReport | None = None
        self.said = 0.0

    def update(self, report: "PrepareReport") -> None:
        """Show the progress of a report, with the time left."""
        if self.begun is None:
            self.begun = report  # excludes tokens of an earlier run from speed and time left
        seconds, share = report.seconds - self.begun.seconds, report.progress - self.begun.progress
        left = duration(seconds * (1 - report.progress) / share) if share > 0 else "?"
        speed = (report.tokens - self.begun.tokens) / max(seconds, 1e-9)
        words = f"{report.tokens:,} tokens, {speed:,.0f} tokens/s, {left} left"
        self.progress.update(self.task, completed=report.progress, description=words)
        if not self.console.is_terminal and report.seconds - self.said >= self.EVERY:
            self.said = report.seconds
            self.say(f"{100 * report.progress:3.0f} %  {words}")

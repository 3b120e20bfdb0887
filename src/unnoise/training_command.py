"""`unnoise train`: from options to a run, with Ctrl-C that loses nothing."""

import json
import shlex
import signal
import sys
from contextlib import nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from unnoise.command.base import device_named
from unnoise.command.measure import kind
from unnoise.data.corpus import corpus
from unnoise.files import check_folder
from unnoise.method_table import method as method_named
from unnoise.model import CONFIG, Model
from unnoise.network.transformer import sized
from unnoise.plot import can_draw, plot_curve
from unnoise.screen import Bar
from unnoise.trainer import STATE, NotANumber, Options, Report, Run, read_state

if TYPE_CHECKING:
    from unnoise.command.train import Train


class Stop:
    """Becomes true at the first Ctrl-C or SIGTERM, so that the step can end and the run be saved."""

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    def __enter__(self) -> "Stop":
        self.before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("\nstopping after this step …", file=sys.stderr)


def prepare(command: "Train") -> Run:
    """The run that the options describe, resumed if asked."""
    method = method_named(command.method)
    if command.loss not in ("quick", "paper"):
        raise ValueError(f"--loss must be quick or paper, found {command.loss!r}")
    out = Path("runs") / f"{command.method}-{Path(command.data).name.split('.')[0]}" if command.out is None else command.out
    if out == Path():
        raise ValueError("--out needs a folder of its own, found the one you are in")
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out {out} is a file: give a folder")
    check_folder(out)
    if (out / STATE).exists() and not command.resume:
        raise ValueError(f"{out} holds a run already: add --resume to go on with it, or choose another --out")
    options = Options(
        steps=command.steps,
        minutes=_minutes(command),
        batch=command.batch,
        accumulate=command.accumulate,
        seed=command.seed,
        matrix_lr=command.matrix_lr,
        other_lr=command.other_lr,
        warmup=command.warmup,
        cooldown=command.cooldown,
        clip=command.clip,
        ema=command.ema,
        eval_every=_evaluations(command) if command.eval_every is None else command.eval_every,
        eval_windows=command.eval_windows,
        save_every=command.save_every,
        compile=command.compile,
    )
    source = corpus(command.data)
    if command.resume and (out / CONFIG).exists():
        model = Model.load(out)
        if model.method.name != command.method:
            raise ValueError(f"{out} holds a run of {model.method.name}, not of {command.method}")
        check_settings(command, model, out)
    else:
        codec = source.codec(command.codec, ends=not method.process(1).variable)
        model = Model.build(
            command.method,
            codec,
            length=codec.length or command.length,
            size=command.size,
            width=command.width,
            depth=command.depth,
            heads=command.heads,
            seed=command.seed,
            labels=source.classes,
        )
    model.to(device_named(command.device))
    objective = method.objective(model.process) if command.loss == "paper" else None
    run = Run(model, source, options, out, objective)
    if command.resume and run.resume() and not command.quiet:
        print(f"going on from step {run.done}", file=sys.stderr)
    return run


def _evaluations(command: "Train") -> int:
    return max(1, command.steps // 10) if command.steps else 250


def check_settings(command: "Train", model: Model, out: Path, everything: bool = False) -> None:
    """ValueError if what was asked for is not what the run in `out` has; unless `everything`, defaults ask for nothing."""
    default = {field.name: field.default for field in fields(command)}
    wanted = vars(command) | dict(zip(("width", "depth", "heads"), sized(command.size), strict=False))
    wanted |= {name: vars(command)[name] for name in ("width", "depth", "heads") if vars(command)[name] is not None}
    wanted |= {"length": model.codec.length or command.length, "minutes": _minutes(command)}
    had = read_state(out / STATE)[0]["options"] if (out / STATE).exists() else vars(command)
    has = had | {"length": model.length} | {name: vars(model.shape)[name] for name in ("width", "depth", "heads")}
    asked = {name for name, value in vars(command).items() if value != default[name]}
    asked |= {"width", "depth", "heads"} if "size" in asked else set()
    names = ("length", "width", "depth", "heads", "seed")
    for name in (*names, "steps", "minutes", "batch") if everything else asked.intersection(names):
        if wanted[name] != has[name]:
            raise ValueError(
                f"the run in {out} has {name} {has[name]}, not {wanted[name]}: "
                "go on with the same options, or take another --out"
            )


def _minutes(command: "Train") -> float | None:
    """Three, if neither steps nor minutes are given."""
    return 3.0 if command.steps is None and command.minutes is None else command.minutes


def train_run(command: "Train") -> tuple[Run, Report]:
    """Run it, with a bar unless told to be quiet, and draw its curve."""
    run = prepare(command)
    with Stop() as stop, Bar(run.model.codec.unit) if not command.quiet else nullcontext() as bar:
        try:
            report = run.go(bar, stop)
        except NotANumber as error:
            raise ValueError(f"{error}; {_rescue(run)} Try a smaller --matrix-lr and --other-lr.") from error
    assert run.out is not None
    if can_draw():
        plot_curve(run.out, run.out / "curve.png")
    return run, report


def train_command(command: "Train") -> int:
    """Run it, and say what came of it; returns the exit code."""
    run, report = train_run(command)
    if command.quiet:
        print(json.dumps({"out": str(run.out)} | {k: v for k, v in asdict(report).items() if k != "curve"}))
    else:
        _tell(run, report)
    return 0 if report.finished else 130


def _rescue(run: Run) -> str:
    if run.out is not None and (run.out / STATE).exists():
        return f"the last good checkpoint is in {run.out}."
    return "no checkpoint had been written yet."


def _tell(run: Run, report: Report) -> None:
    if not report.finished:
        print(f"stopped at step {report.steps}; everything is saved: run the same command with --resume to go on")
        return
    print(
        f"{run.model.method.name}: {report.bits_before:.3f} → {report.bits:.3f} ± {report.stderr:.3f} "
        f"bits per {run.model.codec.unit} "
        f"({kind(run.model)}, held-out), {report.steps} steps, {report.tokens:,} tokens, {report.seconds:.0f} s"
    )
    print(f"saved in {run.out}; try: unnoise generate --model {shlex.quote(str(run.out))} --watch")

"""The command line: the commands, and how they end.

A user's mistake is one sentence on standard error and exit code 2.
"""

import contextlib
import difflib
import io
import os
import re
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Annotated, Any

import tyro
from tyro.conf import FlagCreatePairsOff, OmitSubcommandPrefixes, subcommand

from unnoise.cli.base import only_model
from unnoise.cli.compare import CompareCommand
from unnoise.cli.contrast import ContrastCommand
from unnoise.cli.convert import ConvertCommand
from unnoise.cli.correct import CorrectCommand
from unnoise.cli.demo import DemoCommand
from unnoise.cli.denoise import DenoiseCommand
from unnoise.cli.export import ExportCommand
from unnoise.cli.fill import FillCommand
from unnoise.cli.harness import HarnessCommand
from unnoise.cli.help import prepare_help
from unnoise.cli.images import InpaintCommand
from unnoise.cli.info import InfoCommand, LsCommand
from unnoise.cli.measure import EvalCommand, ScoreCommand
from unnoise.cli.noise import NoiseCommand
from unnoise.cli.plan import PlanCommand
from unnoise.cli.plot import PlotCommand
from unnoise.cli.prepare import PrepareCommand
from unnoise.cli.push import PushCommand
from unnoise.cli.run_command import RunCommand, kept_defaults
from unnoise.cli.studio import StudioCommand
from unnoise.cli.tables import TablesCommand
from unnoise.cli.train import TrainCommand
from unnoise.cli.write import CompleteCommand, GenerateCommand, InfillCommand

COMMANDS: dict[str, type[Any]] = {
    "train": TrainCommand,
    "generate": GenerateCommand,
    "infill": InfillCommand,
    "fill": FillCommand,
    "complete": CompleteCommand,
    "inpaint": InpaintCommand,
    "correct": CorrectCommand,
    "denoise": DenoiseCommand,
    "score": ScoreCommand,
    "eval": EvalCommand,
    "harness": HarnessCommand,
    "compare": CompareCommand,
    "tables": TablesCommand,
    "prepare": PrepareCommand,
    "plan": PlanCommand,
    "convert": ConvertCommand,
    "export": ExportCommand,
    "push": PushCommand,
    "info": InfoCommand,
    "ls": LsCommand,
    "noise": NoiseCommand,
    "plot": PlotCommand,
    "contrast": ContrastCommand,
    "studio": StudioCommand,
    "demo": DemoCommand,
}
ABOUT = "Discrete diffusion models, text first: train, write, fill in, measure."
CONFIG = (OmitSubcommandPrefixes, FlagCreatePairsOff)


def parse(arguments: list[str]) -> Any:
    """The command that was typed, or ValueError with what cannot be read of it.

    A run has the options of its recipe, and one that is resumed those that it was begun with, wherever none is typed.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            command = tyro.cli(_union(), prog="unnoise", description=ABOUT, args=arguments, config=CONFIG)
            command = _with_defaults(command, arguments) if isinstance(command, RunCommand) else command
    except SystemExit as stop:
        if not stop.code:  # --help
            raise
        raise ValueError(_sentence(said.getvalue(), arguments)) from None
    _check_models(command, arguments)
    return command


def _check_models(command: Any, arguments: list[str]) -> None:
    """Raise ValueError if several models are given to a command that takes one."""
    if isinstance(vars(command).get("model"), tuple):  # which takes several
        return
    given = [arguments[i + 1] for i, word in enumerate(arguments[:-1]) if word == "--model"]
    given += [word.partition("=")[2] for word in arguments if word.startswith("--model=")]
    only_model(given, f"unnoise {arguments[0]}")


def _with_defaults(command: RunCommand, arguments: list[str]) -> RunCommand:
    """The same command, read with the options of its recipe, or of the run that it goes on with, as defaults."""
    name, *typed = arguments
    known = kept_defaults(command.defaults(), typed)
    method = command.method if command.method and command.recipe is None else known.get("method", "")
    if not method:
        raise ValueError(f"missing from unnoise {name}: METHOD, a name from unnoise ls, or --recipe")
    if not known:
        return command
    flags = {field for field, value in vars(command).items() if isinstance(value, bool)}  # off by default: typed, they turn on
    values = {field: value for field, value in known.items() if field not in flags}
    default = replace(command, **{**values, "method": method}, **dict.fromkeys(flags, False))
    again = tyro.cli(type(command), prog=f"unnoise {name}", args=typed, default=default, config=CONFIG)
    return replace(again, method=method, **{field: vars(again)[field] or known.get(field, False) for field in flags})


def _union() -> Any:
    """All commands as one type for tyro."""
    chosen: Any = None
    for name, command in COMMANDS.items():
        prepare_help(command)
        one = Annotated[command, subcommand(name)]
        chosen = one if chosen is None else chosen | one
    return chosen


def _sentence(box: str, arguments: list[str]) -> str:
    """What tyro says in a box, in one line: its first part, and the commands there are, where that was the question."""
    framed = box.startswith("╭")  # elsewhere the title is a part of its own
    inside = [line.strip("│ ") for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    parts = re.split(r"\n[─-]{8,}\n", "\n".join(inside).strip())
    kept = [" ".join(part.split()) for part in (parts if framed else parts[1:])]
    words = kept[0].rstrip(".")
    for pattern, plain in (
        (r"invalid literal for int\(\) with base 10: ('.*')", r"\1 is not a whole number"),
        (r"could not convert string to float: ('.*')", r"\1 is not a number"),
        (r"(?i)error parsing \w+Command: ", ""),
        (r"no type matching \S+ could be instantiated from .*: ('.*' is not a (?:whole )?number)", r"\1"),
    ):
        words = re.sub(pattern, plain, words)
    words = "; ".join([words, *(part for part in kept[1:] if part.startswith("Available subcommands"))])
    if re.match("Unrecognized options: [^-]", words) and "Available" not in words:
        words += " (a text with spaces goes in quotes)"
    elif found := re.match(r"Unrecognized options: (--[\w-]+)", words):
        words += _nearest(found[1], arguments)
    where = f"{arguments[0]} " if arguments and arguments[0][:1] != "-" and "Available" not in words else ""
    return f"{words[:1].lower()}{words[1:]}; see unnoise {where}--help"


def _nearest(option: str, arguments: list[str]) -> str:
    """The option that was probably meant."""
    command = COMMANDS.get(arguments[0])
    names = [f"--{field.name.removeprefix('as_').replace('_', '-')}" for field in fields(command)] if command else []
    near = difflib.get_close_matches(option, names, 1, 0.7)
    return f": did you mean {near[0]}?" if near else ""


def main(arguments: list[str] | None = None) -> int:
    """Parse and run; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        from unnoise import __version__

        print(f"unnoise {__version__}")
        return 0
    return exit_code(lambda: parse(arguments).run())


def exit_code(act: Callable[[], int]) -> int:
    """What a command returns; 2 after one sentence about a user's mistake, 130 after Ctrl-C."""
    try:
        return act()
    except ValueError as error:
        return _said(str(error), 2)
    except BrokenPipeError:
        return 0
    except OSError as error:
        return _said(f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 2)
    except KeyboardInterrupt:
        return _said("stopped", 130)


def _said(words: str, code: int) -> int:
    """The exit code, after a sentence on standard error; of several processes on a machine, one speaks."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        print(f"unnoise: {words}", file=sys.stderr)
    return code

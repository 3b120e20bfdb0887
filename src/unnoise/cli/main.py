"""The command line: its commands, and the exit code and message of a user's mistake.

Errors of tyro are described from its structured events. They are not part of tyro's public interface, so pyproject.toml limits
its version.
"""

import difflib
import functools
import operator
import os
import re
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Annotated, Any, NoReturn

import tyro
from tyro import _errors
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
ABOUT = "Train, sample and evaluate discrete diffusion models of text, images and molecules."
CONFIG = (OmitSubcommandPrefixes, FlagCreatePairsOff)
TYPES = {
    "INT": "a whole number",
    "FLOAT": "a number",
    "INT|{auto}": "a whole number or auto",
    "[INT [INT ...]]": "whole numbers",
    "[FLOAT [FLOAT ...]]": "numbers",
}


def parse(arguments: list[str]) -> Any:
    """Parse the command line into a command, or raise ValueError.

    The defaults of a training run are those of its recipe, or of the run that it resumes.
    """

    def fail(event: _errors.ParseErrorEvent) -> NoReturn:
        raise ValueError(_describe(event, arguments))

    with _errors.on_parse_error(fail):
        command = tyro.cli(_all_commands(), prog="unnoise", description=ABOUT, args=arguments, config=CONFIG)
        command = _with_defaults(command, arguments) if isinstance(command, RunCommand) else command
    if not isinstance(vars(command).get("model"), tuple):  # tyro keeps the last --model of a command that takes one
        given = [arguments[i + 1] for i, word in enumerate(arguments[:-1]) if word == "--model"]
        given += [word.partition("=")[2] for word in arguments if word.startswith("--model=")]
        only_model(given, f"unnoise {arguments[0]}")
    return command


def _all_commands() -> Any:
    """Return the union of all commands as a type for tyro."""
    for command in COMMANDS.values():
        prepare_help(command)
    return functools.reduce(operator.or_, (Annotated[command, subcommand(name)] for name, command in COMMANDS.items()))


def _with_defaults(command: RunCommand, arguments: list[str]) -> RunCommand:
    """Parse a training command again with the options of its recipe, or of the run that it resumes, as defaults."""
    name, *typed = arguments
    known = kept_defaults(command.defaults(), typed)
    method = command.method if command.method and command.recipe is None else known.get("method", "")
    if not method:
        raise ValueError(f"missing from unnoise {name}: METHOD, a name from unnoise ls, or --recipe")
    if not known:
        return command
    flags = {field for field, value in vars(command).items() if isinstance(value, bool)}  # a flag that is typed is True
    values = {field: value for field, value in known.items() if field not in flags}
    default = replace(command, **{**values, "method": method}, **dict.fromkeys(flags, False))
    again = tyro.cli(type(command), prog=f"unnoise {name}", args=typed, default=default, config=CONFIG)
    return replace(again, method=method, **{field: vars(again)[field] or known.get(field, False) for field in flags})


def _describe(event: _errors.ParseErrorEvent, arguments: list[str]) -> str:
    """Return a sentence for an error of tyro."""
    command = arguments[0] if arguments and arguments[0] in COMMANDS else None
    match event:
        case _errors.UnrecognizedArgs(tokens=tokens) if command is None:
            message = f"unknown command {tokens[0]!r}: use one of {', '.join(COMMANDS)}"
        case _errors.UnrecognizedArgs(tokens=[option, *_]) if option.startswith("--"):
            message = f"unknown option {option}{_nearest(option, COMMANDS[command or ''])}"
        case _errors.UnrecognizedArgs(tokens=[word, *_]):
            message = f"unexpected argument {word!r} (put a text with spaces in quotes)"
        case _errors.MissingSubcommand():
            message = f"name a command, one of {', '.join(COMMANDS)}"
        case _errors.MissingArgs(missing_arguments=missing):
            names = [one.arg.lowered.metavar if one.arg.is_positional() else one.arg.display_name() for one in missing]
            message = f"missing from unnoise {command}: {', '.join(map(str, names))}"
        case _errors.BadValue(argument=argument):
            message = f"{argument.display_name()} needs a value"
        case _errors.InvalidChoice(argument=argument, value=value, choices=choices):
            listed = ", ".join(sorted(set(choices) - {"None"}))
            message = f"{argument.display_name()} must be one of {listed}, found {value!r}"
        case _errors.InstantiationFailure(argument=argument, message=reason) if argument is not None:
            expected = TYPES.get(str(argument.lowered.metavar), str(argument.lowered.metavar))
            found = re.search("'.*?'", reason)
            message = f"{argument.display_name()} must be {expected}, found {found[0] if found else reason}"
        case _errors.InstantiationFailure(message=message):  # raised by the command's own checks
            return message
        case _:
            message = "these options contradict each other"
    return f"{message}; see unnoise {f'{command} ' if command else ''}--help"


def _nearest(option: str, command: type[Any]) -> str:
    """Return a hint with the option that is spelled most like an unknown one."""
    names = [f"--{field.name.removeprefix('as_').replace('_', '-')}" for field in fields(command)]
    near = difflib.get_close_matches(option, names, 1, 0.7)
    return f" (did you mean {near[0]}?)" if near else ""


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        from unnoise import __version__

        print(f"unnoise {__version__}")
        return 0
    return exit_code(lambda: parse(arguments).run())


def exit_code(act: Callable[[], int]) -> int:
    """Return the result of `act`, 2 after the message of a user's mistake, or 130 after Ctrl-C."""
    try:
        return act()
    except ValueError as error:
        message, code = str(error), 2
    except BrokenPipeError:
        return 0
    except OSError as error:
        message, code = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}", 2
    except KeyboardInterrupt:
        message, code = "stopped", 130
    if os.environ.get("LOCAL_RANK", "0") == "0":  # one of several processes prints
        print(f"unnoise: {message}", file=sys.stderr)
    return code

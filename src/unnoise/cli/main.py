"""The command line: its commands, and the exit code and message of a user's mistake.

Errors of tyro are described from its structured events. They are not part of tyro's public interface, so pyproject.toml limits
its version.

Help texts and placeholders of options, for `--help`.
"""

import ast
import difflib
import functools
import inspect
import itertools
import operator
import os
import re
import sys
import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Union, get_args, get_origin

import tyro
from tyro import _errors
from tyro.conf import FlagCreatePairsOff, OmitSubcommandPrefixes, arg, subcommand

from unnoise.apps.contrasts.command import ContrastCommand
from unnoise.apps.demo import DemoCommand
from unnoise.apps.filling.command import FillCommand
from unnoise.apps.harness.command import HarnessCommand
from unnoise.apps.images import InpaintCommand
from unnoise.apps.plots.command import PlotCommand
from unnoise.apps.plots.noise_command import NoiseCommand
from unnoise.apps.protocols.command import TablesCommand
from unnoise.apps.spelling.command import CorrectCommand
from unnoise.apps.studio.command import StudioCommand
from unnoise.cli.command_base import only_model
from unnoise.cli.convert_command import ConvertCommand, ExportCommand, PushCommand
from unnoise.cli.denoise_command import DenoiseCommand
from unnoise.cli.eval_command import CompareCommand, EvalCommand, ScoreCommand
from unnoise.cli.generate_command import CompleteCommand, GenerateCommand, InfillCommand
from unnoise.cli.info_command import InfoCommand, LsCommand
from unnoise.cli.plan_command import PlanCommand
from unnoise.cli.prepare_command import PrepareCommand
from unnoise.cli.train_command import RunCommand, TrainCommand, kept_defaults

KINDS = {int: "INT", float: "FLOAT", str: "STR", Path: "PATH"}
HIDDEN = ("None", "True", "False", "", "''")  # defaults that the help text explains


def prepare_help(command: type[Any]) -> None:
    """Annotate the fields of a command, and of its base dataclasses, with their help.

    The docstring below a field is its help text, also where a subclass declares the field again.
    `--help` shows an optional value as `--steps INT`, and a default only if a user could type it.
    """
    described: dict[str, str] = {}
    for cls in reversed([cls for cls in command.__mro__ if is_dataclass(cls)]):
        described |= field_docstrings(cls)
        if "__annotations__" in vars(cls) and "_prepared_help" not in vars(cls):
            aliases = {one.name: one.metadata.get("aliases") for one in fields(cls)}
            for name, annotation in cls.__annotations__.items():
                cls.__annotations__[name] = _annotated(annotation, described.get(name), aliases[name])
            cls._prepared_help = True  # pyright: ignore[reportAttributeAccessIssue]


def option_table(options: type[Any]) -> str:
    """Return the options of a dataclass as a table in Markdown: name, default and help."""
    described = field_docstrings(options)
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for one in fields(options):
        default = "–" if one.default in (None, "") else f"`{one.default}`"
        meaning = re.sub(r"(?<![\w`-])(--?[a-z][\w-]*)", r"`\1`", described[one.name]).replace("|", r"\|")
        lines.append(f"| `{one.name}` | {default} | {meaning} |")
    return "\n".join(lines)


@cache
def field_docstrings(cls: type[Any]) -> dict[str, str]:
    """Return the docstring below each field of a class, as one paragraph."""
    (defined,) = ast.parse(inspect.cleandoc(inspect.getsource(cls))).body
    assert isinstance(defined, ast.ClassDef)
    return {
        field.target.id: " ".join(below.value.value.split())
        for field, below in itertools.pairwise(defined.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str)
    }


def _annotated(annotation: Any, described: str | None, aliases: tuple[str, ...] | None) -> Any:
    plain, *metadata = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    shown = arg(help=described, metavar=_metavar(plain), help_behavior_hint=default_hint, aliases=aliases)
    return Annotated[plain, shown, *metadata]  # the last annotation wins, so a field may override its help


def _metavar(annotation: Any) -> str | None:
    """Return the placeholder for the value of an optional field, or None for another field."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return None
    kinds = [kind for kind in get_args(annotation) if kind is not types.NoneType]
    if len(kinds) == len(get_args(annotation)):
        return None
    return "|".join(
        "{" + ",".join(map(str, get_args(kind))) + "}" if get_origin(kind) is Literal else KINDS.get(kind, "STR")
        for kind in kinds
    )


def default_hint(default: str) -> str:
    """Return the note on the default of an option in `--help`."""
    return "" if default in HIDDEN else f"(default: {default})"


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

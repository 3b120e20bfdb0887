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
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Annotated, Any, NoReturn

import tyro
from tyro import _errors
from tyro.conf import FlagCreatePairsOff, OmitSubcommandPrefixes, subcommand

from unnoise.cli.command_base import only_model
from unnoise.cli.help import prepare_help
from unnoise.cli.train_command import RunCommand, kept_defaults
from unnoise.registry import find, import_named, register_builtin, registered

COMMANDS = {
    "train": "unnoise.cli.train_command:TrainCommand",
    "generate": "unnoise.cli.generate_command:GenerateCommand",
    "infill": "unnoise.cli.generate_command:InfillCommand",
    "complete": "unnoise.cli.generate_command:CompleteCommand",
    "denoise": "unnoise.cli.denoise_command:DenoiseCommand",
    "score": "unnoise.cli.eval_command:ScoreCommand",
    "eval": "unnoise.cli.eval_command:EvalCommand",
    "compare": "unnoise.cli.eval_command:CompareCommand",
    "prepare": "unnoise.cli.prepare_command:PrepareCommand",
    "plan": "unnoise.cli.plan_command:PlanCommand",
    "convert": "unnoise.cli.convert_command:ConvertCommand",
    "export": "unnoise.cli.convert_command:ExportCommand",
    "push": "unnoise.cli.convert_command:PushCommand",
    "info": "unnoise.cli.info_command:InfoCommand",
    "ls": "unnoise.cli.info_command:LsCommand",
}
register_builtin("command", COMMANDS)
ABOUT = "Train, sample and evaluate discrete diffusion models of text, images and molecules."
CONFIG = (OmitSubcommandPrefixes, FlagCreatePairsOff)
TYPES = {
    "INT": "a whole number",
    "FLOAT": "a number",
    "INT|{auto}": "a whole number or auto",
    "[INT [INT ...]]": "whole numbers",
    "[FLOAT [FLOAT ...]]": "numbers",
}


def commands() -> dict[str, type[Any]]:
    """Return all commands by name. A plug-in may add commands, and extend a command of the core by a subclass."""
    found = {name: find("command", name) for name in registered("command")}
    for name, target in COMMANDS.items():
        if not issubclass(found[name], import_named(target)):
            raise ValueError(f"a plug-in registers another command {name!r}: it must be a subclass of {target}")
    return found


def parse(arguments: list[str]) -> Any:
    """Parse the command line into a command, or raise ValueError.

    The defaults of a training run are those of its recipe, or of the run that it resumes.
    """
    known = commands()

    def fail(event: _errors.ParseErrorEvent) -> NoReturn:
        raise ValueError(_describe(event, arguments, known))

    with _errors.on_parse_error(fail):
        command = tyro.cli(_union(known), prog="unnoise", description=ABOUT, args=arguments, config=CONFIG)
        command = _with_defaults(command, arguments) if isinstance(command, RunCommand) else command
    if not isinstance(vars(command).get("model"), tuple):  # tyro keeps the last --model of a command that takes one
        given = [arguments[i + 1] for i, word in enumerate(arguments[:-1]) if word == "--model"]
        given += [word.partition("=")[2] for word in arguments if word.startswith("--model=")]
        only_model(given, f"unnoise {arguments[0]}")
    return command


def _union(known: Mapping[str, type[Any]]) -> Any:
    """Return the union of all commands as a type for tyro."""
    for command in known.values():
        prepare_help(command)
    return functools.reduce(operator.or_, (Annotated[command, subcommand(name)] for name, command in known.items()))


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


def _describe(event: _errors.ParseErrorEvent, arguments: list[str], known: Mapping[str, type[Any]]) -> str:
    """Return a sentence for an error of tyro."""
    command = arguments[0] if arguments and arguments[0] in known else None
    match event:
        case _errors.UnrecognizedArgs(tokens=tokens) if command is None:
            message = f"unknown command {tokens[0]!r}: use one of {', '.join(known)}"
        case _errors.UnrecognizedArgs(tokens=[option, *_]) if option.startswith("--"):
            message = f"unknown option {option}{_nearest(option, known[command or ''])}"
        case _errors.UnrecognizedArgs(tokens=[word, *_]):
            message = f"unexpected argument {word!r} (put a text with spaces in quotes)"
        case _errors.MissingSubcommand():
            message = f"name a command, one of {', '.join(known)}"
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

"""The command line: the commands of the core, and the message and exit code of a user's mistake.

Applications and other plug-ins register further commands, and extend those of the core (see `unnoise.registry`).

Mistakes are described from the structured events of tyro. They are not part of its public interface, so pyproject.toml limits
its version.
"""

import difflib
import inspect
import os
import re
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NoReturn

import tyro
from tyro import _errors
from tyro.conf import FlagCreatePairsOff

from unnoise.cli.command_base import only_model
from unnoise.cli.help import prepare_help
from unnoise.cli.train_command import RunCommand, kept_defaults
from unnoise.registry import did_you_mean, find, import_named, register_builtin, registered

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
    "plan": "unnoise.cli.train_command:PlanCommand",
    "convert": "unnoise.cli.convert_command:ConvertCommand",
    "export": "unnoise.cli.convert_command:ExportCommand",
    "push": "unnoise.cli.convert_command:PushCommand",
    "info": "unnoise.cli.info_command:InfoCommand",
    "ls": "unnoise.cli.info_command:LsCommand",
}
register_builtin("command", COMMANDS)
ABOUT = "Train, sample and evaluate discrete diffusion models of text, images and molecules."
CONFIG = (FlagCreatePairsOff,)
TYPES = {
    "INT": "a whole number",
    "FLOAT": "a number",
    "INT|{auto}": "a whole number or auto",
    "[INT [INT ...]]": "whole numbers",
    "[FLOAT [FLOAT ...]]": "numbers",
}


def command_class(name: str) -> type[Any]:
    """Return the class of a command. A plug-in may replace a command of the core by a subclass of it."""
    found = find("command", name)
    if name in COMMANDS and not issubclass(found, import_named(COMMANDS[name])):
        raise ValueError(f"a plug-in registers a different command {name!r}: it must be a subclass of {COMMANDS[name]}")
    return found


def overview() -> str:
    """Return the help text of `unnoise`, with the first sentence of each command's description."""
    lines = ["usage: unnoise COMMAND [OPTIONS]", "", ABOUT, ""]
    for name in registered("command"):
        first, *_ = re.split(r"(?<=\.)\s", inspect.cleandoc(command_class(name).__doc__ or ""), maxsplit=1)
        lines.append(f"  {name:10s} {first}")
    return "\n".join([*lines, "", "unnoise COMMAND --help lists the options of a command."])


def parse(arguments: list[str]) -> Any:
    """Parse the command line into a command, or raise ValueError.

    For a training command, the options of the recipe or of the resumed run serve as defaults.
    """
    known = registered("command")
    if not arguments:
        raise ValueError(f"specify a command: one of {', '.join(known)}; see unnoise --help")
    name, *typed = arguments
    if name not in known:
        raise ValueError(
            f"unknown command {name!r}: {did_you_mean(name, known)}use one of {', '.join(known)}; see unnoise --help"
        )
    kind = command_class(name)
    prepare_help(kind)

    def fail(event: _errors.ParseErrorEvent) -> NoReturn:
        raise ValueError(_describe(event, name, kind))

    with _errors.on_parse_error(fail):
        command = tyro.cli(kind, prog=f"unnoise {name}", args=typed, config=CONFIG)
        command = _with_defaults(command, name, typed) if isinstance(command, RunCommand) else command
    if not isinstance(vars(command).get("model"), tuple):  # tyro keeps the last --model of a command that takes one
        given = [typed[i + 1] for i, word in enumerate(typed[:-1]) if word == "--model"]
        given += [word.partition("=")[2] for word in typed if word.startswith("--model=")]
        only_model(given, f"unnoise {name}")
    return command


def _with_defaults(command: RunCommand, name: str, typed: list[str]) -> RunCommand:
    """Parse a training command again with the options of its recipe, or of the run that it resumes, as defaults."""
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


def _describe(event: _errors.ParseErrorEvent, name: str, command: type[Any]) -> str:
    """Return a sentence for an error of tyro."""
    match event:
        case _errors.UnrecognizedArgs(tokens=[option, *_]) if option.startswith("--"):
            names = [f"--{field.name.removeprefix('as_').replace('_', '-')}" for field in fields(command)]
            near = difflib.get_close_matches(option, names, 1, 0.7)
            message = f"unknown option {option}{f' (did you mean {near[0]}?)' if near else ''}"
        case _errors.UnrecognizedArgs(tokens=[word, *_]):
            message = f"unexpected argument {word!r} (put a text with spaces in quotes)"
        case _errors.MissingArgs(missing_arguments=missing):
            shown = [one.arg.lowered.metavar if one.arg.is_positional() else one.arg.display_name() for one in missing]
            message = f"missing from unnoise {name}: {', '.join(map(str, shown))}"
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
    return f"{message}; see unnoise {name} --help"


def main(arguments: list[str] | None = None) -> int:
    """Run a command line and return the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        from unnoise import __version__

        print(f"unnoise {__version__}")
        return 0

    def act() -> int:
        if arguments[:1] in (["--help"], ["-h"]):
            print(overview())
            return 0
        return parse(arguments).run()

    return exit_code(act)


def exit_code(act: Callable[[], int]) -> int:
    """Call `act` and return its exit code. Return 2 and print a message for a user's mistake, or 130 after Ctrl-C."""
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

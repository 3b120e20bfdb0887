"""The command line: the commands of `unnoise.command`, and how they end.

A user's mistake is one sentence on standard error and exit code 2.
"""

import contextlib
import io
import re
import sys
from typing import Annotated, Any

import tyro
from tyro.conf import FlagCreatePairsOff, OmitSubcommandPrefixes, subcommand

from unnoise.command.measure import Compare, Eval, Score
from unnoise.command.show import Demo, Info, Ls, Plot, Studio
from unnoise.command.train import Train
from unnoise.command.write import Complete, Correct, Generate, Infill, Inpaint

Command = Annotated[
    Annotated[Train, subcommand("train")]
    | Annotated[Generate, subcommand("generate")]
    | Annotated[Infill, subcommand("infill")]
    | Annotated[Complete, subcommand("complete")]
    | Annotated[Inpaint, subcommand("inpaint")]
    | Annotated[Correct, subcommand("correct")]
    | Annotated[Score, subcommand("score")]
    | Annotated[Eval, subcommand("eval")]
    | Annotated[Compare, subcommand("compare")]
    | Annotated[Info, subcommand("info")]
    | Annotated[Ls, subcommand("ls")]
    | Annotated[Plot, subcommand("plot")]
    | Annotated[Studio, subcommand("studio")]
    | Annotated[Demo, subcommand("demo")],
    None,
]


def _parsed(arguments: list[str]) -> Any:
    """The command that was typed, or ValueError with what cannot be read of it."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return tyro.cli(
                Command,  # pyright: ignore[reportArgumentType]
                prog="unnoise",
                description="Discrete diffusion models, text first: train, write, fill in, measure.",
                args=arguments,
                config=(OmitSubcommandPrefixes, FlagCreatePairsOff),
            )
    except SystemExit as stop:
        if not stop.code:  # --help
            raise
        raise ValueError(_sentence(said.getvalue(), arguments)) from None


def _sentence(box: str, arguments: list[str]) -> str:
    """What tyro says in a box, in one line: its first part, and the commands there are, where that was the question."""
    framed = box.startswith("╭")  # elsewhere the title is a part of its own
    inside = [line.strip("│ ") for line in box.splitlines() if not line.startswith(("╭", "╰"))]
    parts = re.split(r"\n[─-]{8,}\n", "\n".join(inside).strip())
    kept = [" ".join(part.split()) for part in (parts if framed else parts[1:])]
    words = kept[0]
    for pattern, plain in (
        (r"invalid literal for int\(\) with base 10: ('.*')", r"\1 is not a whole number"),
        (r"could not convert string to float: ('.*')", r"\1 is not a number"),
    ):
        words = re.sub(pattern, plain, words)
    words = "; ".join([words, *(part for part in kept[1:] if part.startswith("Available subcommands"))])
    if re.match("Unrecognized options: [^-]", words) and "Available" not in words:
        words += " (a text with spaces goes in quotes)"
    where = f"{arguments[0]} " if arguments and arguments[0][:1] != "-" and "Available" not in words else ""
    return f"{words[:1].lower()}{words[1:]}; see unnoise {where}--help"


def main(arguments: list[str] | None = None) -> int:
    """Parse and run; returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        from unnoise import __version__

        print(f"unnoise {__version__}")
        return 0
    try:
        return _parsed(arguments).run()
    except ValueError as error:
        print(f"unnoise: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except OSError as error:
        print(f"unnoise: {error.strerror or error}{f': {error.filename}' if error.filename else ''}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("unnoise: stopped", file=sys.stderr)
        return 130


def entry() -> None:
    """The console script."""
    sys.exit(main())

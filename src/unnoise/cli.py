"""The command line: the commands of `unnoise.command`, and how they end.

A user's mistake is one sentence on standard error and exit code 2.
"""

import sys
from typing import Annotated

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


def main(arguments: list[str] | None = None) -> int:
    """Parse and run; returns the exit code."""
    if (sys.argv[1:] if arguments is None else arguments) == ["--version"]:
        from unnoise import __version__

        print(f"unnoise {__version__}")
        return 0
    command = tyro.cli(
        Command,  # pyright: ignore[reportArgumentType]
        prog="unnoise",
        description="Discrete diffusion models, text first: train, write, fill in, measure.",
        args=arguments,
        config=(OmitSubcommandPrefixes, FlagCreatePairsOff),
    )
    try:
        return command.run()
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

"""`python -m unnoise`, and the console script: Ctrl-C is quiet from the first moment on."""

import sys


def entry() -> None:
    """Run the command line, and end with its exit code."""
    try:
        from unnoise.cli.main import main

        code = main()
    except KeyboardInterrupt:
        print("unnoise: stopped", file=sys.stderr)
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    entry()

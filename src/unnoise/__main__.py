"""`python -m unnoise`, and the console script: Ctrl-C is quiet from the first moment on."""

import os
import sys

SPINS = "1000"


def set_wait_policy() -> None:
    """Let OpenMP's threads spin only briefly for each other, unless the environment says something else.

    By default they spin for long; when another program wants the cores, they wait for each other at full load, and training
    becomes several times slower (`benchmarks/threads.py`). It must be set before torch is imported.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = SPINS


def entry() -> None:
    """Run the command line, and end with its exit code."""
    set_wait_policy()
    try:
        from unnoise.cli.main import main

        code = main()
    except KeyboardInterrupt:
        print("unnoise: stopped", file=sys.stderr)
        code = 130
    sys.exit(code)


if __name__ == "__main__":
    entry()

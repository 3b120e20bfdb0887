"""Entry point of `python -m unnoise` and of the console script."""

import os
import sys

SPINS = "1000"


def set_wait_policy() -> None:
    """Limit how long OpenMP threads spin while they wait, unless the environment sets this already.

    By default they spin for a long time. If another program uses the cores, training then becomes several times slower
    (`benchmarks/threads.py`). The variable must be set before torch is imported.
    """
    if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
        os.environ["GOMP_SPINCOUNT"] = SPINS


def entry() -> None:
    """Run the command line and exit with its code."""
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

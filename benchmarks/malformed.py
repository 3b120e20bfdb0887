"""Published checkpoints of every family, each damaged or made to do harm in one way: what comes of a thousand of them.

    python benchmarks/malformed.py
    python benchmarks/malformed.py --first 417 --count 1 --show     # one of them again

Each is refused in one sentence, or opens with finite outputs; anything else is a failure, which is listed with its number:
another exception, numbers that are not finite, more than ten seconds, more than 1 GB, or a canary file, which would mean that
something of it was run. The exit code is 1 if there are any.
"""

import argparse
import faulthandler
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))


def main() -> int:
    from malformed import FAILURES, variants

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", action="store_true", help="what is said of every one")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    faulthandler.enable()
    start, slowest = time.monotonic(), (0.0, "")
    found: Counter[str] = Counter()
    ways: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as home:
        before = time.monotonic()
        for ended, which, words in variants(chosen.first, chosen.first + chosen.count, chosen.seed, Path(home)):
            slowest = max(slowest, (time.monotonic() - before, which)) if found else slowest
            before = time.monotonic()
            faulthandler.dump_traceback_later(25, exit=True)
            found[ended] += 1
            ways[which.partition(", ")[2]] += 1
            if chosen.show or ended in FAILURES:
                print(f"{which}: {ended}: {words[:300]}", flush=True)
        faulthandler.cancel_dump_traceback_later()
    failures = sum(found[ended] for ended in FAILURES)
    print(f"{found.total()} variants in {time.monotonic() - start:.0f} s: {dict(found)}; {dict(sorted(ways.items()))}")
    print(f"{failures} failures; the slowest took {slowest[0]:.1f} s ({slowest[1]})")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())

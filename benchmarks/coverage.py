"""Coverage of the 95 % intervals of scores, over repetitions with other seeds.

    python benchmarks/coverage.py path/to/text8 --model wiki
    python benchmarks/coverage.py path/to/text8 --model wiki --tokens 5 --samples 16

From the test part comes one text of each length. It is scored with the seeds 1, 2, …; the bound itself is the mean of all
scores or, where the choices of masks are few, their sum. Printed are how many intervals cover it, their mean width and the mean
standard error in bits per character, the spread of the scores over the seeds, how far their mean lies from a reference of
independent draws (the bias, with its error), and seconds of a score.
"""

import argparse
import math
import time
from statistics import fmean, stdev

import unnoise
from unnoise.data.corpus import corpus
from unnoise.model.likelihood import SCORE_ERROR

REFERENCE = 1024  # draws, with a seed that no repetition has


def main() -> None:
    """Score the texts and print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a corpus with a test part")
    parser.add_argument("--model", default="wiki")
    parser.add_argument("--tokens", type=int, nargs="+", default=[5, 30, 300], help="lengths of the texts")
    parser.add_argument("--samples", type=int, default=None, help="draws at most, as for unnoise score")
    parser.add_argument("--error", type=float, default=SCORE_ERROR, help="as for unnoise score")
    parser.add_argument("--repetitions", type=int, default=200)
    options = parser.parse_args()
    model = unnoise.load(options.model)
    tokens = model.texts(corpus(options.data), "test").windows()[: -(-max(options.tokens) // model.length)].flatten().numpy()
    print("tokens  covered   width  stderr  spread   draws      bias ± its error   seconds")
    for length in options.tokens:
        text = model.codec.decode(tokens[:length])
        start = time.perf_counter()
        found = [model.score(text, options.samples, 1 + seed, options.error) for seed in range(options.repetitions)]
        seconds = (time.perf_counter() - start) / options.repetitions
        bits = [one.bits_per_char for one in found]
        spread = stdev(bits)
        exact = fmean(bits)
        intervals = [one.interval for one in found if one.interval is not None]
        covered = sum(low <= exact + 1e-9 and exact - 1e-9 <= high for low, high in intervals) / options.repetitions
        reference = model.score(text, REFERENCE, 0, 0.0)
        error = math.hypot(spread / math.sqrt(options.repetitions), reference.stderr or 0.0)
        print(
            f"{length:6d}  {covered:6.1%}  {fmean(high - low for low, high in intervals):6.3f}  "
            f"{fmean(one.stderr or 0.0 for one in found):6.3f}  {spread:6.3f}  {fmean(one.draws for one in found):6.1f}  "
            f"{exact - reference.bits_per_char:+8.4f} ± {error:.4f}   {seconds:8.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

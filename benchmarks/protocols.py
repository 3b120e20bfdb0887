"""WikiText-2 and LAMBADA, whole, by a published protocol and by the bound: a Markdown table.

    python benchmarks/protocols.py path/to/data --model stories                 # path/to/data has wikitext2 and lambada
    python benchmarks/protocols.py path/to/data --model stories --windows 64    # a share of the windows, evenly spread

Each row is what `unnoise eval --protocol NAME --data path/to/data/SET --samples 4` prints. A row costs eight passes over all
windows for a published protocol, and four for the bound. Fewer than four draws have an error bar from as few sets of them,
which is itself hardly known.
"""

import argparse
import time
from pathlib import Path

import unnoise
from unnoise.apps.protocols.protocols import Evaluation, evaluate
from unnoise.apps.protocols.windows import find_benchmark

COLUMNS = (
    "set",
    "protocol",
    "documents",
    "windows",
    "tokens counted",
    "tokens dropped",
    "as published",
    "mean of passes",
    "true bound",
    "bits per character",
    "bound − published, nats a token",
)


def row(found: Evaluation) -> str:
    """One line of the table."""
    facts = found.as_dict()
    bound, published = facts["bound"], facts.get("published")
    windows = f"{found.windows:,}" + ("" if found.windows == len(found.chunks.x) else f" of {len(found.chunks.x):,}")
    values = [
        found.benchmark.name,
        found.protocol.name,
        f"{found.chunks.documents:,}",
        windows,
        f"{found.bound.tokens:,}",
        f"{found.chunks.dropped:,}",
        f"{published['value']:.2f}" if published else "",
        f"{published['mean']['perplexity']:.2f} ± {published['mean']['perplexity_stderr']:.2f}" if published else "",
        f"{bound['perplexity']:.2f} ± {bound['perplexity_stderr']:.2f}",
        f"{bound['bits_per_char']:.4f} ± {bound['bits_per_char_stderr']:.4f}",
        f"{found.difference[0]:+.5f} ± {found.difference[1]:.5f}" if published else "",
    ]
    return f"| {' | '.join(values)} |"


def parts(found: Evaluation) -> str:
    """What the difference is made of, in nats a token."""
    tokens = found.bound.tokens
    each = ", ".join(f"{gap.name} {gap.nats / tokens:+.5f} ± {gap.stderr / tokens:.5f}" for gap in found.gaps)
    return f"{found.benchmark.name}, {found.protocol.name}: bound − published is {each}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="stories")
    parser.add_argument("--sets", nargs="+", default=["wikitext2", "lambada"])
    parser.add_argument("--protocols", nargs="+", default=["mdlm", "bound"])
    parser.add_argument("--windows", type=int)
    parser.add_argument("--samples", type=int, default=4, help="draws of the bound for each window")
    parser.add_argument("--passes", type=int, default=2, help="of the published figure")
    given = parser.parse_args()
    model = unnoise.load(given.model)
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    notes = []
    for name in given.sets:
        path = find_benchmark(given.data, name)
        if path is None:
            raise SystemExit(f"the folder {given.data} has nothing that is named after {name}")
        for protocol in given.protocols:
            start = time.perf_counter()
            found = evaluate(model, protocol, str(path), name, None, given.windows, given.samples, given.passes)
            print(row(found), flush=True)
            notes += [parts(found)] if found.gaps else []
            notes.append(f"{name}, {protocol}: {time.perf_counter() - start:.0f} s")
    print("\n" + "\n".join(notes))

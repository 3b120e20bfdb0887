"""Quality against the number of network calls: what a judge thinks of the texts, with their variety beside it.

    python benchmarks/quality.py --model wiki --judge runs/ar --picture docs/quality.png

The judge is an autoregressive model on the same kind of text: its perplexity a character over the samples. Perplexity alone
can be had by writing the same easy words for ever, so the entropy of the samples' characters and the share of distinct words
are beside it; the last line has these figures for real text.
"""

import argparse
import math
from collections import Counter
from pathlib import Path

import unnoise
from unnoise.plot import LINES, picture

SAMPLERS = ("ancestral", "first-hitting", "confidence", "entropy-bounded", "remasking")
CALLS = (16, 32, 64, 128, 256)


def entropy(texts: list[str]) -> float:
    """Bits of the characters' distribution."""
    counts = Counter("".join(texts))
    total = sum(counts.values())
    return -sum(n / total * math.log2(n / total) for n in counts.values())


def distinct(texts: list[str]) -> float:
    words = " ".join(texts).split()
    return len(set(words)) / max(len(words), 1)


def line(name: str, calls: str, judge: unnoise.Model, texts: list[str]) -> float:
    bits = judge.score(texts).bits_per_char
    print(f"{name:16s} {calls:>5s} {2**bits:10.2f} {entropy(texts):9.3f} {distinct(texts):9.3f}", flush=True)
    return 2**bits


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="wiki")
    parser.add_argument("--judge", default="runs/ar")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--data", help="real text to compare with")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    model, judge = unnoise.load(options.model), unnoise.load(options.judge)
    print(f"{'sampler':16s} {'calls':>5s} {'perplexity':>10s} {'entropy':>9s} {'distinct':>9s}")
    found: dict[str, list[float]] = {}
    for name in SAMPLERS:
        for calls in CALLS:
            if name == "first-hitting" and calls != model.length:
                continue  # one call a token, always
            texts = model.generate(options.samples, steps=calls, sampler=name)
            found.setdefault(name, []).append(line(name, str(calls), judge, texts))
    if options.data:
        rows = unnoise.corpus(options.data).texts(model.codec, "test", model.length).windows(200)
        line("real text", "", judge, [model.codec.decode(row) for row in rows.tolist()])
    if options.picture:
        with picture(options.picture) as axes:
            for (name, values), style, mark in zip(found.items(), (*LINES, "-"), "os^Dv", strict=True):
                calls = CALLS if len(values) > 1 else (model.length,)
                axes.plot(calls, values, color="black", linestyle=style, marker=mark, markersize=4, label=name)
            axes.set_xscale("log", base=2)
            axes.set(xlabel="network calls", ylabel="the judge's perplexity a character", title=model.method.name)
            axes.legend(frameon=False)

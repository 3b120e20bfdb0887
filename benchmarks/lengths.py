"""Do texts of variable length come out as long as the corpus's? The Kolmogorov–Smirnov distance of the two distributions.

python benchmarks/lengths.py --model runs/flexmdm --data sotu --samples 500 --steps 64
"""

import argparse

import numpy as np

import unnoise

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="runs/flexmdm")
    parser.add_argument("--data", default="sotu")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--steps", type=int, default=64)
    options = parser.parse_args()
    model = unnoise.load(options.model)
    texts = unnoise.corpus(options.data).texts(model.codec, "test", model.length, segment="sentences")
    theirs = np.sort((texts.windows() >= 0).sum(1).numpy())
    ours = np.sort([len(model.codec.encode(text)) for text in model.generate(options.samples, steps=options.steps)])
    grid = np.arange(model.length + 1)
    shares = [np.searchsorted(lengths, grid, side="right") / len(lengths) for lengths in (ours, theirs)]
    print(f"{len(ours)} texts and {len(theirs)} sentences: KS distance {np.abs(shares[0] - shares[1]).max():.3f}")
    for name, lengths in (("written", ours), ("corpus", theirs)):
        quantiles = ", ".join(f"{q:.0f}" for q in np.quantile(lengths, [0.1, 0.25, 0.5, 0.75, 0.9]))
        print(f"{name:8s} mean {lengths.mean():.1f}, deciles and quartiles {quantiles}")

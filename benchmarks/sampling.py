"""The cost of writing, as ratios within one run: what is not the network's, many steps against few, and a plain loop.

    python benchmarks/sampling.py                     # mdlm, 16 texts of 256 tokens, 6 blocks of width 128 and 256
    python benchmarks/sampling.py --methods           # the share that is not the network's, for every method
    python benchmarks/sampling.py --workers 2         # two processes against one with all threads

Processor time of one thread, the least of several runs taken in turns, so that other programs on the machine matter little;
only --workers is by the clock. The network's part is its forward pass with the output head; softmax and all else is ours. The
plain loop is ancestral sampling as it is usually written: every step reads the whole batch and draws at every position.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

import torch

import unnoise

LENGTH = 256
SIZES = {"6 × 128 (tiny)": {}, "6 × 256": {"width": 256, "depth": 6, "heads": 4}}
STEPS = (128, 256, 1000)
PLAIN_STEPS = 16  # of the plain loop that are measured: each costs the same


def model_of(method: str, **shape: int) -> unnoise.Model:
    """A model that says something: a fresh network's output is the same everywhere."""
    model = unnoise.Model.build(method, codec="text8", length=LENGTH, **shape)  # pyright: ignore[reportArgumentType]
    torch.nn.init.normal_(model.network.get_submodule("head").get_parameter("weight"), std=0.05)
    return model


class Clock:
    """Seconds of this thread in a network's forward pass, and the rows that it has read."""

    def __init__(self, network: torch.nn.Module):
        self.seconds, self.rows = 0.0, 0
        self.hooks = network.register_forward_pre_hook(self.start), network.register_forward_hook(self.stop)

    def start(self, network: torch.nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        self.rows += len(given[0])
        self.begun = time.thread_time()

    def stop(self, *_: object) -> None:
        self.seconds += time.thread_time() - self.begun


def ours(model: unnoise.Model, texts: int, steps: int) -> tuple[float, float, int]:
    """Seconds in all, seconds of the network, and rows that it has read."""
    clock = Clock(model.network)
    start = time.thread_time()
    model.generate(texts, steps=steps)
    total = time.thread_time() - start
    for hook in clock.hooks:
        hook.remove()
    return total, clock.seconds, clock.rows


@torch.no_grad()
def plain(model: unnoise.Model, texts: int, steps: int, most: int) -> float:
    """x_s ~ p(x_s | x_t) of masked diffusion with α = 1 − t: seconds of each of the first `most` steps."""
    mask = model.codec.vocab
    x = torch.full((texts, LENGTH), mask)
    start = time.thread_time()
    for i in range(most):
        t, s = 1 - i / steps, 1 - (i + 1) / steps
        p = torch.softmax(model.network(x), -1)
        q = torch.cat([p * (t - s), torch.full((texts, LENGTH, 1), s)], -1) / t
        x = torch.where(x == mask, torch.distributions.Categorical(q).sample(), x)
    return (time.thread_time() - start) / most


def compare_steps(texts: int, repeats: int, sizes: Sequence[str]) -> None:
    for name, shape in ((name, SIZES[name]) for name in sizes):
        model = model_of("mdlm", **shape)
        plain(model, texts, 1000, 1)
        best: dict[int, tuple[float, float, int]] = {}
        step = float("inf")
        for _ in range(repeats):
            for steps in STEPS:
                best[steps] = min(best.get(steps, (float("inf"), 0.0, 0)), ours(model, texts, steps))
                step = min(step, plain(model, texts, steps, PLAIN_STEPS))
        for steps, (total, network, rows) in best.items():
            print(
                f"{name}, {steps:5,} steps: {total:6.1f} s, {100 * (1 - network / total):4.1f} % not the network's, "
                f"{rows / texts:4.0f} rows read a text; a plain loop takes × {steps * step / total:.2f}",
                flush=True,
            )
        print(f"{name}: 1,000 steps take × {best[1000][0] / best[256][0]:.2f} of 256 steps", flush=True)


def compare_methods(texts: int, repeats: int) -> None:
    for method in unnoise.methods():
        model = model_of(method)
        total, network, rows = min(ours(model, texts, 32) for _ in range(repeats))
        share = 100 * (1 - network / total)
        print(f"{method:14s} {total:6.2f} s, {share:4.1f} % not the network's, {rows / texts:4.0f} rows a text", flush=True)


def compare_workers(texts: int, repeats: int, workers: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        model_of("mdlm").save(folder)
        line = [sys.executable, "-m", "unnoise", "generate", "--model", folder, "--num-samples", str(texts), "--steps", "64"]

        def seconds(count: int) -> float:
            start = time.monotonic()
            subprocess.run([*line, "--workers", str(count)], check=True, stdout=subprocess.DEVNULL, env=os.environ)
            return time.monotonic() - start

        times = [[seconds(count) for count in (1, workers)] for _ in range(repeats)]
        one, several = (min(column) for column in zip(*times, strict=True))
        print(f"{texts} texts, 64 steps: one process {one:.1f} s, {workers} workers {several:.1f} s: × {one / several:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--sizes", nargs="+", choices=list(SIZES), default=list(SIZES))
    parser.add_argument("--methods", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    if given.workers > 1:
        compare_workers(given.texts, given.repeats, given.workers)
    else:
        torch.set_num_threads(1)
        if given.methods:
            compare_methods(given.texts, given.repeats)
        else:
            compare_steps(given.texts, given.repeats, given.sizes)

"""What each choice is worth: mdlm on text8 at equal characters, one thing changed at a time.

    python benchmarks/choices.py path/to/text8 --steps 250

Bits per character on held-out text (the bound), and the speed relative to the first line. Equal time favours the faster
lines more than this table shows.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unnoise.data import Text8
from unnoise.data.corpus import Corpus, corpus
from unnoise.denoiser import Denoiser
from unnoise.model.model import Model
from unnoise.network.network_base import rebuild_network
from unnoise.objective import CrossEntropy, Elbo, Objective
from unnoise.process import Process
from unnoise.training.trainer import TrainingRun
from unnoise.training.training_options import TrainingOptions


class Complementary(Objective):
    """Every text twice in a batch, with opposite masks."""

    def __init__(self, process: Process):
        super().__init__()
        self.inner = CrossEntropy(process, initial_max_t=0.3)
        self.process = process

    def set_progress(self, progress: float) -> None:
        self.inner.set_progress(progress)

    def forward(self, denoiser: Denoiser, x: Tensor, generator: torch.Generator | None = None) -> Tensor:
        half = x[: len(x) // 2]
        t, _ = self.inner.times(len(half), x.device, generator)
        first = self.process.corrupt(half, t, generator)
        second = torch.where(first == self.process.vocab, half, self.process.vocab)
        both = [self.inner.at(denoiser, half, noised, time) for noised, time in ((first, t), (second, 1 - t))]
        return torch.cat(both)


BATCH = 8
CHOICES: dict[str, tuple[dict[str, Any], dict[str, Any], Callable[[Process], Objective] | None]] = {
    "as shipped (tiny)": ({}, {}, None),
    "no curriculum: every mask rate from the start": ({}, {}, CrossEntropy),
    "the bound as the loss, as in the paper": ({}, {}, Elbo),
    "complementary masks of each text": ({}, {}, Complementary),
    "no convolution": ({"taps": 1}, {}, None),
    "convolution of 5 taps": ({"taps": 5}, {}, None),
    "convolution of 15 taps": ({"taps": 15}, {}, None),
    "attention in every block": ({"attention_every": 1}, {}, None),
    "4 layers, attention in each": ({"attention_every": 1, "depth": 4}, {}, None),
    "width 192": ({"width": 192}, {}, None),
    "batch 4, twice the steps": ({}, {"batch": 4}, None),
    "batch 16, half the steps": ({}, {"batch": 16}, None),
    "Adam for everything (lr 0.003)": ({}, {"adam": True}, None),
    "matrix learning rate × 1.5": ({}, {"muon_lr": 0.03}, None),
}


def trial(
    source: Corpus, steps: int, shape: dict[str, Any], options: dict[str, Any], objective: Callable[[Process], Objective] | None
) -> tuple[float, float, float]:
    """Bits, standard error, and seconds."""
    base = Model.build("mdlm", Text8(), length=256)
    torch.manual_seed(0)
    network = rebuild_network("transformer", {**base.config()["network"]["config"], **shape})
    model = Model(base.method, base.codec, network, base.length)
    steps = steps * BATCH // options.get("batch", BATCH)  # equal characters
    adam = options.pop("adam", False)
    chosen = TrainingOptions(steps=steps, loss="fast", eval_windows=512, **options)
    run = TrainingRun(model, source, chosen, objective=objective(model.process) if objective else None)
    if adam:  # for all weights
        run.optimizers = [torch.optim.Adam(run.learned.parameters(), chosen.adam_lr, betas=(0.9, 0.95), fused=True)]
        run.set_schedules()
    start = time.monotonic()
    for _ in range(steps):
        run.step()
    seconds = time.monotonic() - start
    bits, error = run.evaluate()
    return bits, error, seconds


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--only", default="", help="the choices whose names hold this")
    arguments = parser.parse_args()
    text = corpus(arguments.data)
    print(f"{arguments.steps} steps of 8 × 256 characters; the size is tiny unless named")
    first = None
    for name, (changed_shape, changed_options, objective) in CHOICES.items():
        if arguments.only not in name:
            continue
        bits, error, seconds = trial(text, arguments.steps, changed_shape, changed_options, objective)
        first = first or seconds
        print(f"{name:48s} {bits:.3f} ± {error:.3f} bits, time × {seconds / first:.2f}", flush=True)

"""The cost of a training step, as a ratio to a bare loop in the same run: forward, backward, optimizer, plain cross-entropy.

    python benchmarks/step.py

Both use the same network, optimizer and batch. At a small vocabulary unnoise must cost next to nothing; at 50,257 tokens the
output head runs at masked positions only, which the bare loop cannot do.
"""

import time

import torch
from torch.nn import functional as F

from memory import peak_bytes
from unnoise.data import Text8
from unnoise.data.codec import Codec
from unnoise.model.model import Model
from unnoise.objective import CrossEntropy
from unnoise.training.optim import optimizers
from unnoise.training.parallel import retained_memory
from unnoise.training.trainer import TrainingRun
from unnoise.training.training_options import TrainingOptions

CASES = {  # name → vocabulary, batch, length, rounds
    "small": (27, 16, 256, 12),
    "large": (50_257, 8, 256, 4),
}


class Numbers(Codec):
    """A vocabulary of any size; the benchmark needs no text."""

    kind = "numbers"

    def __init__(self, vocab: int):
        self.vocab = vocab

    encode = Text8.encode
    decode = Text8.decode
    show = Text8.show


def make(case: str) -> tuple[TrainingRun, torch.Tensor]:
    vocab, batch, length, _ = CASES[case]
    model = Model.build("mdlm", Numbers(vocab), length=length)
    tokens = torch.randint(vocab, (200_000,), generator=torch.Generator().manual_seed(0))
    # no curriculum here: half of the positions are masked on average, as in most of a run
    run = TrainingRun(model, tokens, TrainingOptions(steps=10_000, batch=batch), objective=CrossEntropy(model.process))
    return run, tokens[: batch * length].view(batch, length)


def ours(case: str):
    run, _ = make(case)
    return run.step


def bare(case: str):
    run, x = make(case)
    network = run.model.network
    both = optimizers(network)

    def step() -> None:
        network.zero_grad(set_to_none=True)
        F.cross_entropy(network(x).flatten(0, 1), x.flatten()).backward()
        for optimizer in both:
            optimizer.step()

    return step


def seconds(step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def measure_time(case: str) -> tuple[float, float]:
    """Median seconds of a step, ours and bare, taken in turns."""
    steps = ours(case), bare(case)
    for step in steps:
        step()
    times = [[seconds(step) for step in steps] for _ in range(CASES[case][3])]
    return tuple(float(torch.tensor(column).median()) for column in zip(*times, strict=True))  # pyright: ignore[reportReturnType]


def measure_memory(step) -> float:
    """Peak memory of a step beyond what was held before, in MB."""
    step()
    return peak_bytes(step) / 2**20


if __name__ == "__main__":
    torch.manual_seed(0)
    for case, (vocab, batch, length, _) in CASES.items():
        with retained_memory(torch.device("cpu")):
            mine, plain = measure_time(case)
        memory = [measure_memory(made(case)) for made in (ours, bare)]
        print(
            f"K = {vocab:6,}, batch {batch} × {length}: ours {mine:.3f} s, bare {plain:.3f} s, time ratio {mine / plain:.2f}; "
            f"memory {memory[0]:.0f} MB, bare {memory[1]:.0f} MB, ratio {memory[0] / memory[1]:.2f}",
            flush=True,
        )

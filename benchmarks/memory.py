"""Peak memory of a loss and its gradient at a large vocabulary, in tensors of [B, L, K] float32.

    python benchmarks/memory.py

The plain baseline in the same run: cross-entropy over all positions, which needs a few such tensors by itself.
"""

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from unnoise import Elbo, Linear, LogLinear, Masked, MeanPrediction, Prediction, Process, ScorePrediction, Uniform

BATCH, LENGTH, VOCAB = 2, 64, 50_257


class Head:
    """A network that is nothing but its output: a table of logits, differentiable; masked positions only where asked."""

    def __init__(self, process: Process, score: bool):
        self.width = process.states if score else process.vocab
        self.score = score
        self.hidden = torch.randn(BATCH, LENGTH, 16, requires_grad=True)
        self.weight = torch.randn(16, self.width, requires_grad=True)

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> Prediction:
        hidden = self.hidden if where is None else self.hidden[where]
        logits = hidden @ self.weight * 0.1
        return ScorePrediction(logits) if self.score else MeanPrediction.from_logits(logits)


def peak_bytes(work) -> int:
    """The most that torch's CPU allocator held at once during work(), beyond what it held before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        work()
    events = sorted((e for e in prof.profiler.kineto_results.events() if e.name() == "[memory]"), key=lambda e: e.start_ns())
    held = highest = 0
    for event in events:
        held += event.nbytes()
        highest = max(highest, held)
    return highest


def cases() -> dict[str, tuple[Process, bool]]:
    return {
        "masked mean (mdlm)": (Masked(VOCAB, LogLinear(1e-3)), False),
        "masked score (sedd-absorb)": (Masked(VOCAB, Linear()), True),
        "uniform marginal (d3pm-uniform's reading)": (Uniform(VOCAB, Linear()), False),
        "uniform plug-in (udlm)": (Uniform(VOCAB, Linear(), reverse="plug-in"), False),
        "uniform score (sedd-uniform)": (Uniform(VOCAB, Linear()), True),
    }


def measure() -> dict[str, float]:
    """Peak in units of one [B, L, K] float32 tensor."""
    unit = BATCH * LENGTH * VOCAB * 4
    x = torch.randint(VOCAB, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
    results = {}
    for name, (process, score) in cases().items():
        head = Head(process, score)

        def loss(process: Process = process, head: Head = head) -> None:
            Elbo(process)(head, x, torch.Generator().manual_seed(1)).sum().backward()

        results[name] = peak_bytes(loss) / unit
    head = Head(Uniform(VOCAB, Linear()), False)

    def plain() -> None:
        logits = head.hidden @ head.weight
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), x.flatten()).backward()

    results["plain cross-entropy, all positions"] = peak_bytes(plain) / unit
    return results


if __name__ == "__main__":
    print(f"B = {BATCH}, L = {LENGTH}, K = {VOCAB:,}; one [B, L, K] float32 tensor is the unit")
    for name, peak in measure().items():
        print(f"{name:45s} {peak:5.2f}")

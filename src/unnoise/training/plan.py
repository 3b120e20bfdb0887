"""What a run takes, computed before it begins: weights, memory, traffic, arithmetic, days.

The network is built on torch's meta device, which has shapes and no memory. P weights, of them M in the matrices of the blocks;
N devices; texts of L tokens, D features, V outputs; b = 2 bytes of a number in bf16, else 4.

**Memory of a device.** Weights, gradients and averaged weights are float32, 4P bytes each; AdamW's moments are 8P, Muon's
4M + 8(P − M). Sharded (FSDP2), each weight is cut along its first axis, and a device holds ⌈d₀/N⌉ of its d₀ rows of all these.
Buffers: autocast's copies of the matrices, 2 bytes a weight, in bf16; the buckets of DistributedDataParallel, 4P; or, sharded,
the gathered weights (b) and gradients (4) of what is outside the blocks and of two blocks.
Activations that are kept for the gradient, in bytes for each token and feature of a block: 76 in float32, and 66 in bf16, since
CUDA's autocast computes norms and squares in float32; 44 and 40 where a block has no attention; 8 more with time conditioning
(adaLN), 1 for each branch with dropout. With activation checkpointing a block keeps its input alone, 4, and one block at a time
is computed again. Head and loss: 3.2 (masked noise, mean), 4.4 (masked noise, score), 5 (mean) or 3 (score) tensors of [n, V]
float32 at their peak (measured by `benchmarks/memory.py`), n being the positions at which the head is asked. What the step that
needs most needs is counted; torch's own context, and what its allocator cannot use, are not.

**Work of a step.** How often an objective calls the network, with gradient and without, and at how many positions it asks the
head, is counted on a small network. Forward is 2 operations for each weight of a linear layer and position, the gradient
4 more; attention is 4·L·D forward for each position and layer, half of that if causal. Checkpointing computes the blocks twice.
The last block's perceptron, which runs where the head is asked, is counted everywhere. Not counted: convolutions, norms,
embeddings, the optimiser but for Muon's Newton–Schulz, which the devices share out: 10·(2k²l + k³) for a matrix of k ≤ l, or
4k²l + 34k³ where 2k ≤ l. The time is that over N devices of a given speed, used to a given share; traffic is taken to
be hidden behind it.

**Traffic**, bytes that each device sends in a step: 2(N − 1)/N·4P for DistributedDataParallel's all-reduce; sharded, (N − 1)/N
of 2bP for the two all-gathers of each part of the batch, and of 4P for one reduce-scatter; for Muon (N − 1)/N·4M.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from unnoise.data import codec as make_codec
from unnoise.method_table import Method, method as method_named
from unnoise.model.parts import needed_fields
from unnoise.network.network_base import build_network
from unnoise.network.transformer import sized
from unnoise.training.costs import (
    Precision,
    Weights,
    activation_bytes,
    head_bytes,
    measured_work,
    newton_schulz_flops,
    step_flops,
)
from unnoise.training.training_options import LENGTH, RunOptions

GPT2 = 50_257  # tokens
DAY = 86_400.0  # seconds


@dataclass(frozen=True)
class Devices:
    """What a run is computed on: how many, operations a second each, bytes of memory each, and the share of that speed."""

    count: int
    flops: float
    memory: float
    utilisation: float


@dataclass(frozen=True)
class Plan:
    """What a run takes; memory and traffic in bytes, of one device. What is not known is None."""

    parameters: int
    texts_per_update: int
    texts_per_device: int
    device_batch: int
    parts: int
    memory: dict[str, float]
    memory_total: float
    memory_total_checkpointed: float | None
    largest_device_batch: int | None
    largest_device_batch_checkpointed: int | None
    fits: bool | None
    traffic: dict[str, float]
    tokens_per_step: int
    tokens: int | None
    flops_per_step: dict[str, float]
    head_share: float
    seconds_per_step: float
    days: float | None


def plan(
    options: RunOptions,
    devices: Devices,
    vocab: int,
    image: tuple[int, ...] = (),
) -> Plan:
    """The plan of a run over `vocab` tokens, or images of a shape."""
    precision: Precision = "float32" if options.precision == "float32" else "bf16"
    method = method_named(options.method)
    network, length = meta_network(options, method, vocab, image)
    held = Weights(network, method.process_for(vocab, image), options, devices.count, precision, options.shard)
    work = measured_work(options.method, options.loss)
    share = -(-options.batch // devices.count)
    at_once = min(options.device_batch or -(-share // (options.accumulate or 1)), share)
    parts = -(-share // at_once)
    memory = held.memory()
    room = devices.memory - sum(memory.values())
    head = head_bytes(method, vocab) * length * work.most_asked
    kept, checkpointed = (
        None if one is None else one * length * work.most_read
        for one in activation_bytes(network, precision, options.dropout > 0)
    )
    chosen = checkpointed if options.checkpoint_activations else kept
    memory |= {"activations": at_once * (chosen or 0.0), "head and loss": at_once * head}
    total = sum(memory.values())
    flops = step_flops(network, work, options.batch, length, options.checkpoint_activations)
    if options.optimizer == "muon":
        flops["muon"] = sum(newton_schulz_flops(matrix.shape) for matrix in held.matrices)
    seconds = sum(flops.values()) / (devices.count * devices.flops * devices.utilisation)
    return Plan(
        parameters=held.count,
        texts_per_update=options.batch,
        texts_per_device=share,
        device_batch=at_once,
        parts=parts,
        memory=memory,
        memory_total=total,
        memory_total_checkpointed=None if checkpointed is None else devices.memory - room + at_once * (checkpointed + head),
        largest_device_batch=None if kept is None else max(0, int(room / (kept + head))),
        largest_device_batch_checkpointed=None if checkpointed is None else max(0, int(room / (checkpointed + head))),
        fits=None if chosen is None else total <= devices.memory,
        traffic=held.traffic(parts),
        tokens_per_step=options.batch * length,
        tokens=None if options.steps is None else options.steps * options.batch * length,
        flops_per_step=flops,
        head_share=(work.asked + work.asked_without_gradient) / (work.read + work.read_without_gradient),
        seconds_per_step=seconds,
        days=None if options.steps is None else options.steps * seconds / DAY,
    )


def meta_network(options: RunOptions, method: Method, vocab: int, image: Sequence[int] = ()) -> tuple[nn.Module, int]:
    """The network of a run without memory for its weights, and the length of its texts."""
    length = math.prod(image) if image else options.length or LENGTH
    grid = (image[0], length // image[0]) if image else ()
    needed = needed_fields(method, vocab, length, 0, grid, math.prod(image[2:]))
    wished = sized(options.size, options.width, options.depth, options.heads)
    with torch.device("meta"):
        return build_network(options.network, needed, wished), length


def vocabulary(codec: str) -> int:
    """How many tokens a codec has, by its name alone, or ValueError; GPT-2's 50,257 where its folder is not at hand."""
    kind, _, detail = codec.partition(":" if ":" in codec else "-")
    if kind == "gpt2" and not Path(detail or ".").is_dir():
        return GPT2
    if kind == "bpe" and (not detail or detail.isdigit()):
        return int(detail or 2048)
    if kind in ("gpt2", "text8", "bytes"):
        return make_codec(codec).vocab
    raise ValueError(f"the vocabulary of the codec {codec} follows from the data: give --vocab, or a --codec such as text8")

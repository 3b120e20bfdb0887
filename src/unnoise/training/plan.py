"""Estimates of the weights, memory, traffic, arithmetic and time of a training run.

The network is built on torch's meta device, without memory for its weights. Notation: P weights, M of them in the matrices of
the blocks; N devices; sequences of L tokens, D features, V outputs; b = 2 bytes per number in bf16, else 4.

**Memory of a device.** Weights, gradients and averaged weights are float32, 4P bytes each. AdamW's moments take 8P bytes,
Muon's 4M + 8(P − M). FSDP2 shards each weight along its first axis: a device holds ⌈d₀/N⌉ of d₀ rows of all these. Buffers:
autocast's copies of the matrices in bf16, 2 bytes per weight; the buckets of DistributedDataParallel, 4P bytes; with FSDP2 the
gathered weights (b) and gradients (4) of two blocks and of everything outside the blocks.

Activations kept for the gradient, in bytes per token and feature of a block: 76 in float32, and 66 in bf16, since CUDA's
autocast computes norms and squares in float32; 44 and 40 in a block without attention; 8 more with time conditioning (adaLN), 1
more per branch with dropout. With activation checkpointing a block keeps only its input (4), and one block at a time is
recomputed. Head and loss: 3.2 (masked noise, mean), 4.4 (masked noise, score), 5 (mean) or 3 (score) tensors of [n, V] float32
at their peak (measured by `benchmarks/memory.py`), for n positions of the head. The estimate is for the step with the most
positions. It does not include torch's context and memory that its allocator cannot use.

**Arithmetic of a step.** The network calls of an objective and the positions of the head, with and without gradient, are
counted with a small network. The forward pass takes 2 operations per weight of a linear layer and position, the backward pass 4
more; attention takes 4·L·D forward per position and layer, half of it if causal. Checkpointing computes the blocks twice. The
perceptron of the last block, which only runs at the positions of the head, is counted everywhere. Muon's Newton–Schulz
iterations, which are split over the devices, take 10·(2k²l + k³) for a matrix with sides k ≤ l, or 4k²l + 34k³ if 2k ≤ l. Not
counted: convolutions, norms, embeddings and the rest of the optimizer. The time assumes N devices with a given speed and
utilisation, and traffic that overlaps with the arithmetic.

**Traffic** in bytes that each device sends per step: 2(N − 1)/N·4P for DistributedDataParallel's all-reduce; with FSDP2, (N −
1)/N of 2bP for the two all-gathers of each part of the batch, and of 4P for one reduce-scatter; (N − 1)/N·4M for Muon.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from unnoise.data import codec as make_codec
from unnoise.method_table import Method, method as method_named
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
    """The devices of a run: their number, and the operations per second, bytes of memory and utilisation of each."""

    count: int
    flops: float
    memory: float
    utilisation: float


@dataclass(frozen=True)
class Plan:
    """Estimates for a run. Memory and traffic are in bytes per device; unknown values are None."""

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


def plan(options: RunOptions, devices: Devices, vocab: int, image: tuple[int, ...] = ()) -> Plan:
    """Return the estimates for a run. vocab: vocabulary size. image: shape of an image, for data of images."""
    precision: Precision = "float32" if options.precision == "float32" else "bf16"
    method = method_named(options.method)
    network, length = meta_network(options, method, vocab, image)
    held = Weights(network, method.process_for(vocab, image), options, devices=devices.count, precision=precision)
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
    """Return the network of a run on the meta device, and the length of its sequences."""
    length = math.prod(image) if image else options.length or LENGTH
    grid = (image[0], length // image[0]) if image else ()
    needed = method.network_fields(vocab, length, grid=grid, channels=math.prod(image[2:]))
    wished = sized(options.size, options.width, options.depth, options.heads)
    with torch.device("meta"):
        return build_network(options.network, needed, wished), length


def vocabulary(codec: str) -> int:
    """Return the vocabulary size of a codec by its name, or raise ValueError. GPT-2's is known without its folder."""
    kind, _, detail = codec.partition(":" if ":" in codec else "-")
    if kind == "gpt2" and not Path(detail or ".").is_dir():
        return GPT2
    if kind == "bpe" and (not detail or detail.isdigit()):
        return int(detail or 2048)
    if kind in ("gpt2", "text8", "bytes"):
        return make_codec(codec).vocab
    raise ValueError(f"the vocabulary of the codec {codec} depends on the data: give --vocab, or a --codec such as text8")

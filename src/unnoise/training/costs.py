"""Memory, traffic and arithmetic of a training run. The formulas are explained in training/plan.py."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor, nn

from unnoise.method_table import Method
from unnoise.model.model import Model
from unnoise.network.transformer import Block, Convolution, Transformer
from unnoise.objective.objective_base import Objective
from unnoise.prediction import RatioPrediction, ScorePrediction
from unnoise.process import Masked
from unnoise.rng import RowGenerator
from unnoise.training.optim import split
from unnoise.training.training_options import Loss, RunOptions

Precision = Literal["bf16", "float32"]
ACTIVATIONS = {  # bytes per token and feature of a block: float32, bf16
    "convolution": (4, 2),
    "attention": (4 + 4 + 12 + 8 + 4, 4 + 2 + 6 + 8 + 4 + 2),  # norm, qkv's input and output (and in float32), q and k, output
    "perceptron": (4 + 4 + 16 + 16, 4 + 2 + 8 + 16 + 8),  # norm, up's input, ReLU (and in float32), down's input
    "adaLN": (4, 4),  # for each of the two norms
}
POINTER = 34  # bytes per pair of positions: scores, sums, token and visibility
HEAD = {"masked mean": 3.2, "masked score": 4.4, "mean": 5.0, "score": 3.0}  # peak in tensors of [n, V] float32
SIZE, TIMES = 768, 4  # size and repetitions of the matrix product that measures the speed of a device


# ---- weights -------------------------------------------------------------------------------------------------------------


class Weights:
    """The weights of a run on `devices` devices, with gradients, moments, averages and buffers.

    The weights of the process are never sharded.
    """

    def __init__(self, network: nn.Module, process: nn.Module, options: RunOptions, *, devices: int, precision: Precision):
        self.options, self.devices, self.shard = options, devices, options.shard
        self.compute = 2 if precision == "bf16" else 4
        self.network = list(network.parameters())
        self.process = [weight for weight in process.parameters() if weight.requires_grad]
        self.matrices = list(split(network)[0].values())
        linear = [layer.weight for layer in network.modules() if isinstance(layer, nn.Linear)]
        self.cast = _count(linear) if precision == "bf16" else 0
        blocks = [_count(block.parameters()) for block in network.blocks] if isinstance(network, Transformer) else []
        self.gathered = _count(self.network) - sum(blocks) + 2 * max(blocks, default=0)

    @property
    def count(self) -> int:
        """The number of learned parameters."""
        return _count(self.network) + _count(self.process)

    def on_device(self, weights: Iterable[Tensor]) -> int:
        """Return how many of these parameters the first device holds, which holds the most."""
        if not self.shard:
            return _count(weights)
        return sum(-(-weight.shape[0] // self.devices) * (weight.numel() // weight.shape[0]) for weight in weights)

    def memory(self) -> dict[str, float]:
        """Return the bytes per device without activations."""
        held = self.on_device(self.network) + _count(self.process)
        moments = 2 * held - (self.on_device(self.matrices) if self.options.optimizer == "muon" else 0)
        found = {"weights": 4.0 * held, "gradients": 4.0 * held, "moments": 4.0 * moments}
        if self.options.ema_decay:
            found["averaged weights"] = 4.0 * held
        if self.shard:
            found["buffers"] = float((self.compute + 4) * self.gathered)
        else:
            found["buffers"] = 2.0 * self.cast + (4.0 * self.count if self.devices > 1 else 0.0)
        return found

    def traffic(self, parts: int) -> dict[str, float]:
        """Return the bytes that a device sends in a step. parts: number of parts of its share of the batch."""
        others = (self.devices - 1) / self.devices
        if self.shard:
            count = _count(self.network)
            found = {"all-gather": parts * 2 * others * self.compute * count, "reduce-scatter": others * 4 * count}
        else:
            found = {"all-reduce": 2 * others * 4 * self.count}
        if self.options.optimizer == "muon":
            found["muon"] = others * 4 * _count(self.matrices)
        return found


def _count(weights: Iterable[Tensor]) -> int:
    return sum(weight.numel() for weight in weights)


# ---- activations ---------------------------------------------------------------------------------------------------------


def activation_bytes(network: nn.Module, precision: Precision, dropout: bool) -> tuple[float | None, float | None]:
    """Return the bytes per token kept for the gradient, without and with checkpointing; None for other networks."""
    if not isinstance(network, Transformer):
        return None, None
    column, width = int(precision == "bf16"), network.shape.width
    blocks = [width * _block_bytes(block, column, dropout) for block in network.blocks if isinstance(block, Block)]
    ends = 3 * 4 * width  # the norms of embedding and head, and the head's input
    if network.pointer is not None:  # with queries, keys and their norms
        ends += POINTER * network.shape.length + 4 * (width + 4 * network.pointer.query.out_features)
    return float(sum(blocks) + ends), float(4 * width * len(blocks) + max(blocks) + ends)


def _block_bytes(block: Block, column: int, dropout: bool) -> int:
    branches = ["perceptron"] if block.attention is None else ["attention", "perceptron"]
    parts = ["convolution", *branches, *(["adaLN"] * len(branches) if block.adaln is not None else [])]
    return sum(ACTIVATIONS[part][column] for part in parts) + len(branches) * dropout


def head_bytes(method: Method, vocab: int) -> float:
    """Return the peak bytes of the head's output and the loss, per position of the head."""
    kind = "score" if issubclass(method.parameterization.prediction, (ScorePrediction, RatioPrediction)) else "mean"
    process = method.process(vocab)
    outputs = method.parameterization.network_config(process, 1, method.time_free)["outputs"]
    return 4 * HEAD[f"masked {kind}" if isinstance(process, Masked) else kind] * outputs


# ---- arithmetic ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """Positions per token of the data, averaged over steps.

    read, asked: positions of the network and of its head, with gradient.
    read_without_gradient, asked_without_gradient: the same without gradient.
    most_read, most_asked: maxima of `read` and `asked` over steps, which determine the memory.
    """

    read: float
    asked: float
    read_without_gradient: float
    asked_without_gradient: float
    most_read: float
    most_asked: float


@cache
def measured_work(method: str, loss: Loss, batches: int = 32, batch: int = 16, length: int = 32) -> Work:
    """Return the positions at which a method's objective evaluates the network, counted with a small network."""
    model = Model.build(method, "text8", length=length, width=8, depth=1, heads=1)
    fast = model.method.fast_objective if loss == "fast" else None
    objective: Objective = (fast or model.method.objective)(model.process)
    tokens = batch * length
    counted: list[list[float]] = []

    def count(_: nn.Module, inputs: tuple[Any, ...]) -> None:
        x, where = inputs[0], inputs[2] if len(inputs) > 2 else None
        read = x.shape[0] * x.shape[1] / tokens
        first = 0 if torch.is_grad_enabled() else 2
        counted[-1][first] += read
        counted[-1][first + 1] += read if where is None else float(where.sum()) / tokens

    model.network.register_forward_pre_hook(count)
    for i in range(batches):
        counted.append([0.0] * 4)
        objective.set_progress(i / batches)
        objective(model.denoiser, torch.zeros(batch, length, dtype=torch.long), RowGenerator(i, torch.arange(batch)))
    found = torch.tensor(counted)
    return Work(*found.mean(0).tolist(), *found.amax(0)[:2].tolist())


def step_flops(network: nn.Module, work: Work, texts: int, length: int, checkpointing: bool = False) -> dict[str, float]:
    """Return the operations of one update on all devices, by part of the network."""
    position, head = _used_weights(network)
    tokens = texts * length
    passes = (8 if checkpointing else 6) * work.read + 2 * work.read_without_gradient
    found = {
        "blocks": passes * position * tokens,
        "head": (6 * work.asked + 2 * work.asked_without_gradient) * head * tokens,
    }
    if isinstance(network, Transformer):
        layers = sum(block.attention is not None for block in network.blocks if isinstance(block, Block))
        seen = length / 2 if network.shape.causal else length
        found["attention"] = passes * 2 * layers * network.shape.width * seen * tokens
        if network.pointer is not None:
            found["pointer"] = passes * network.pointer.query.out_features * length * tokens
    return found


def _used_weights(network: nn.Module) -> tuple[int, int]:
    """Return the number of matrix weights used at every position, and of those of the head."""
    position = head = 0
    for name, layer in network.named_modules():
        matrices = _count(weight for weight in layer.parameters(recurse=False) if weight.dim() == 2)
        if name == "head":
            head += matrices
        elif not isinstance(layer, nn.Embedding | Convolution) and not name.startswith("time_embed") and name[-5:] != "adaln":
            position += matrices  # time conditioning is computed once per sequence
    return position, head


def newton_schulz_flops(shape: Sequence[int]) -> float:
    """Return the operations of Muon's five iterations for a matrix."""
    small, large = sorted(shape)
    if large >= 2 * small:  # the factor is iterated
        return 4.0 * small * small * large + 34.0 * small**3
    return 10.0 * (2 * small * small * large + small**3)


def product_flops(device: torch.device, dtype: torch.dtype | None) -> float:
    """Measure the floating-point operations per second of a matrix product, 2n³ / seconds, the fastest of a few."""
    a = torch.ones(SIZE, SIZE, device=device, dtype=dtype)
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    fastest = math.inf
    for _ in range(TIMES):
        wait()
        start = time.perf_counter()
        torch.mm(a, a)
        wait()
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * SIZE**3 / fastest


def flops_per_token(network: nn.Module) -> float:
    """Return the operations of a forward and backward pass: 6 per weight, embeddings excluded."""
    embeddings = {id(layer.weight) for layer in network.modules() if isinstance(layer, nn.Embedding)}
    return 6.0 * sum(weight.numel() for weight in network.parameters() if id(weight) not in embeddings)

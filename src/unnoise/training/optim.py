"""Optimizers, learning rate schedules and the exponential moving average of weights (EMA).

The default is Muon for the matrices of the blocks and Adam for all other weights; AdamW for everything is an option.

Muon (Keller Jordan, 2024) replaces the momentum of a matrix by the nearest orthogonal matrix, with five Newton–Schulz
iterations. torch.optim.Muon runs them in bfloat16, which is slow on most CPUs; here they run in the dtype of the weights.
"""

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from unnoise import distributed
from unnoise.training.parallel import local, shard_of
from unnoise.training.training_options import TrainingOptions

# ---- averaged weights ----------------------------------------------------------------------------------------------------


class WeightAverage:
    """ŵ ← d·ŵ + (1 − d)·w after each step, with d = min(decay, (1 + n)/(10 + n)) after n ≥ 1 steps, and ŵ ← w at the first.

    The warm-up lets the average forget the initial weights. Without it, and with a decay of 0.9999, they would still be nine
    tenths of the average after a thousand steps.

    weights: averaged weights by name.
    steps: number n of steps.
    """

    def __init__(self, module: nn.Module, decay: float):
        self.module, self.decay, self.steps = module, decay, 0
        self.weights = {name: weight.detach().clone() for name, weight in module.named_parameters()}

    @torch.no_grad()
    def update(self) -> None:
        """Update the average after a step."""
        new = 1 - min(self.decay, (1 + self.steps) / (10 + self.steps)) if self.steps else 1.0
        for name, weight in self.module.named_parameters():
            self.weights[name].lerp_(weight, new)
        self.steps += 1

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Put the averaged weights into the module for the duration of the context."""
        kept = {name: weight.detach().clone() for name, weight in self.module.named_parameters()}
        try:
            put_parameters(self.module, self.weights)
            yield
        finally:
            put_parameters(self.module, kept)


@torch.no_grad()
def put_parameters(module: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Copy values into the parameters of a module, by name."""
    for name, weight in module.named_parameters():
        weight.copy_(values[name])


# ---- learning rates ------------------------------------------------------------------------------------------------------


def learning_rate_factor(progress: float, options: TrainingOptions) -> float:
    """Return the factor on the learning rates, which rises over the warm-up and falls over the cool-down.

    Let c be the remaining fraction of the cool-down. The factor is c (linear), ½(1 − cos πc) (cosine), lr_final^{1−c}
    (exponential), √(w/progress) after a warm-up of w (inverse-sqrt), or 1 (constant).
    """
    warmup, rise = _warmup(progress, options)
    left = min(1.0, max(0.0, 1 - progress) / max(options.cooldown, 1e-9))
    match options.lr_schedule:
        case "linear":
            return rise * left
        case "cosine":
            return rise * 0.5 * (1 - math.cos(math.pi * left))
        case "exponential":
            return rise * options.lr_final ** (1 - left)
        case "inverse-sqrt":
            return rise * math.sqrt(warmup / max(warmup, progress))
        case "constant":
            return rise


def _warmup(progress: float, options: TrainingOptions) -> tuple[float, float]:
    """Return the fraction of the run that is warm-up, and the factor of the warm-up."""
    if options.warmup_steps is None:
        return max(options.warmup, 1e-3), min(1.0, (progress + 1e-3) / max(options.warmup, 1e-3))
    if options.steps is None:
        raise ValueError("warmup_steps needs a run counted in steps: give steps, or warmup as a fraction of the run")
    return options.warmup_steps / options.steps, min(1.0, (progress * options.steps + 1) / options.warmup_steps)


# ---- Muon ----------------------------------------------------------------------------------------------------------------

COEFFICIENTS = 3.4445, -4.7750, 2.0315  # a, b, c


def orthogonal(matrix: Tensor, iterations: int = 5) -> Tensor:
    """Return approximately U·Vᵀ of matrix = U·S·Vᵀ, with singular values between 0.7 and 1.2: [n, m] → [n, m].

    The iteration is X ← (aI + bA + cA²)·X with A = XXᵀ, from X = matrix/‖matrix‖. If one side is at least twice as long as the
    other, the factor P of X = P·X_0 is iterated instead. All factors are polynomials of the first A, so they commute, and
    A ← (aI + bA + cA²)·A·(aI + bA + cA²) needs only products of the smaller size.
    """
    x = matrix / (matrix.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    x = _by_factor(x, iterations) if x.shape[1] >= 2 * x.shape[0] else _by_products(x, iterations)
    return x.T if tall else x


def _by_products(x: Tensor, iterations: int) -> Tensor:
    a, b, c = COEFFICIENTS
    for _ in range(iterations):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def _by_factor(x: Tensor, iterations: int) -> Tensor:
    a, b, c = COEFFICIENTS
    gram, product = x @ x.T, None
    for i in range(iterations):
        factor = torch.addmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal().add_(a)
        product = factor if product is None else factor @ product
        if i < iterations - 1:
            gram = factor @ (gram @ factor)
    return x if product is None else product @ x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum with orthogonalised updates: W ← W − lr·√max(1, n/m)·orthogonal(G + μ-weighted momentum), W [n, m].

    The weight μ of the momentum rises from 0.85 to `momentum`: a short memory while the loss still falls fast.
    """

    def __init__(self, matrices: Iterable[nn.Parameter], lr: float = 0.02, momentum: float = 0.95):
        super().__init__(matrices, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, closure: Callable[[], float] | None = None
    ) -> float | None:
        """Update the weights. closure: function that computes the loss and the gradients again, as in torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            updates = [self._direction(weight, group["momentum"]) for weight in weights]
            for weight, update in zip(weights, orthogonal_each(updates), strict=True):
                factor = max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5
                local(weight).add_(local(update), alpha=-group["lr"] * factor)
        return loss

    def _direction(self, weight: nn.Parameter, most: float) -> Tensor:
        """Return the gradient with Nesterov momentum: [n, m]."""
        assert weight.grad is not None
        state = self.state[weight]
        if not state:
            state["momentum_buffer"], state["step"] = torch.zeros_like(weight), torch.zeros(())
        state["step"] += 1
        momentum = min(most, 0.85 + float(state["step"]) * 3e-4)
        state["momentum_buffer"].lerp_(weight.grad, 1 - momentum)
        return weight.grad.lerp(state["momentum_buffer"], momentum)


def orthogonal_each(matrices: Sequence[Tensor]) -> list[Tensor]:
    """Return `orthogonal` of each matrix. Each is computed by one process, its owner, and sent to the others.

    Replicated matrices are broadcast, all matrices of an owner at once. Matrices that are sharded by rows are gathered at their
    owners, and each process receives its rows back.
    """
    if distributed.world() == 1 or not matrices:
        return [orthogonal(matrix) for matrix in matrices]
    owner = owners([matrix.shape[0] * matrix.shape[1] * min(matrix.shape) for matrix in matrices], distributed.world())
    return (_of_copies if shard_of(matrices[0]) is None else _of_shards)(matrices, owner)


def _of_copies(matrices: Sequence[Tensor], owner: Sequence[int]) -> list[Tensor]:
    found, flats = list(matrices), []
    for who in range(distributed.world()):
        owned = [i for i, other in enumerate(owner) if other == who]
        flat = matrices[0].new_empty(sum(matrices[i].numel() for i in owned))
        for i, part in zip(owned, flat.split([matrices[i].numel() for i in owned]), strict=True):
            found[i] = part.view(matrices[i].shape)
            if who == distributed.rank():
                found[i].copy_(orthogonal(matrices[i]))
        flats.append(flat)
    for who, flat in enumerate(flats):
        dist.broadcast(flat, who)
    return found


def _of_shards(matrices: Sequence[Tensor], owner: Sequence[int]) -> list[Tensor]:
    count, mine = distributed.world(), distributed.rank()
    sizes = [-(-matrix.shape[0] // count) for matrix in matrices]  # rows of a shard; the last shards are padded
    gathered, updates, sent = [], [], []
    for matrix, who, size in zip(matrices, owner, sizes, strict=True):
        rows = _padded(local(matrix), size)
        parts = [torch.empty_like(rows) for _ in range(count)] if who == mine else None
        gathered.append((parts, dist.gather(rows, parts, who, async_op=True)))
    for matrix, who, size, (parts, gathering) in zip(matrices, owner, sizes, gathered, strict=True):
        gathering.wait()
        found = None if parts is None else orthogonal(torch.cat(parts)[: matrix.shape[0]])
        back = None if found is None else [_padded(found[r * size : (r + 1) * size], size) for r in range(count)]
        update = local(matrix).new_empty(size, matrix.shape[1])
        sent.append(dist.scatter(update, back, who, async_op=True))
        updates.append(update[: len(local(matrix))])
    for scattering in sent:
        scattering.wait()
    return updates


def _padded(rows: Tensor, size: int) -> Tensor:
    return torch.nn.functional.pad(rows, (0, 0, 0, size - len(rows))).contiguous()


def owners(costs: Sequence[float], processes: int) -> list[int]:
    """Assign tasks to processes, the most expensive first, each to the process with the least work: [tasks] ranks."""
    load, chosen = [0.0] * processes, [0] * len(costs)
    for task in sorted(range(len(costs)), key=lambda i: -costs[i]):
        chosen[task] = load.index(min(load))
        load[chosen[task]] += costs[task]
    return chosen


# ---- the optimizers of a run ---------------------------------------------------------------------------------------------

DEFAULTS = TrainingOptions()
BETA1 = 0.9  # β1 of Adam and AdamW
PROCESS = "objective."  # prefix of the parameters of the process, which an objective holds


def optimizers(module: nn.Module, options: TrainingOptions = DEFAULTS) -> list[torch.optim.Optimizer]:
    """Return Muon for the matrices of the blocks and torch's Adam for the rest, or torch's AdamW for everything.

    The learning rate of the parameters of the process is `options.process_lr`.
    """
    fused = all(weight.device.type in ("cpu", "cuda") for weight in module.parameters())
    betas = BETA1, options.beta2
    if options.optimizer == "adamw":
        return [torch.optim.AdamW(groups, betas=betas, fused=fused) for groups in adamw_groups(module, options)]
    if options.weight_decay:
        raise ValueError(f"weight_decay is for the optimizer adamw, found {options.weight_decay} with {options.optimizer}")
    matrices, others = split(module)
    made: list[torch.optim.Optimizer] = []
    if matrices:
        made.append(Muon(matrices.values(), options.muon_lr))
    for sharded in (True, False):  # one Adam cannot hold both kinds
        network, process = [], []
        for name, weight in others.items():
            if (shard_of(weight) is not None) is sharded:
                (process if name.startswith(PROCESS) else network).append(weight)
        groups = [
            {"params": network, "lr": options.adam_lr},
            {"params": process, "lr": options.process_lr or options.adam_lr},
        ]
        if network or process:
            made.append(torch.optim.Adam([group for group in groups if group["params"]], betas=betas, fused=fused))
    return made


def split(module: nn.Module) -> tuple[dict[str, nn.Parameter], dict[str, nn.Parameter]]:
    """Return the weights for Muon (matrices of linear layers except the output head and single rows) and for Adam, by name."""
    matrices, others = {}, {}
    linear = {
        id(layer.weight)
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear) and layer.out_features > 1 and not name.endswith("head")
    }
    for name, weight in module.named_parameters():
        (matrices if id(weight) in linear else others)[name] = weight
    return matrices, others


def adamw_groups(module: nn.Module, options: TrainingOptions) -> list[list[dict[str, Any]]]:
    """Return AdamW's groups of weights: those of the network with and without decay, then those of the process.

    The weights of the process are never sharded, so they need a separate optimizer. Matrices are weights with two axes or
    more that are no embeddings.
    """
    embeddings = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Embedding)}
    decayed, kept, of_process = [], [], []
    for name, weight in module.named_parameters():
        matrix = weight.dim() >= 2 and id(weight) not in embeddings
        if name.startswith(PROCESS):
            of_process.append(weight)
        elif matrix or options.weight_decay_on == "all":
            decayed.append(weight)
        else:
            kept.append(weight)
    network = [
        {"params": decayed, "lr": options.lr, "weight_decay": options.weight_decay},
        {"params": kept, "lr": options.lr, "weight_decay": 0.0},
    ]
    process = [{"params": of_process, "lr": options.process_lr or options.lr, "weight_decay": 0.0}]
    found = [[group for group in groups if group["params"]] for groups in (network, process)]
    return [groups for groups in found if groups]

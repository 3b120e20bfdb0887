"""Muon for the matrices of the blocks, torch's Adam for everything else; or torch's AdamW for all.

Muon (Keller Jordan, 2024) replaces the momentum of a matrix by its nearest orthogonal one, by five Newton–Schulz iterations.
torch.optim.Muon runs them in bfloat16, which crawls on CPUs without it; here they run in the dtype of the weights.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

import torch
import torch.distributed as dist
from torch import Tensor, nn

from unnoise import distributed
from unnoise.training.options import TrainingOptions

DEFAULTS = TrainingOptions()
BETA1 = 0.9  # of Adam and AdamW


def orthogonal(matrix: Tensor, iterations: int = 5) -> Tensor:
    """About U·Vᵀ of matrix = U·S·Vᵀ (singular values between 0.7 and 1.2): [n, m] → [n, m].

    X ← aX + (bA + cA²)X with A = XXᵀ, from X = matrix/‖matrix‖.
    """
    x = matrix / (matrix.norm() + 1e-7)
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    for _ in range(iterations):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """Nesterov momentum with orthogonalised updates: W ← W − lr·√max(1, n/m)·orthogonal(G + μ-weighted momentum), W [n, m].

    The weight μ of the momentum rises from 0.85 to `momentum`: a short memory while the loss still falls fast.
    """

    def __init__(self, matrices: Iterable[nn.Parameter], lr: float = 0.02, momentum: float = 0.95):
        super().__init__(matrices, {"lr": lr, "momentum": momentum})

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update; closure: computes the loss and its gradients once more, as in torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [weight for weight in group["params"] if weight.grad is not None]
            updates = [self._direction(weight, group["momentum"]) for weight in weights]
            for weight, update in zip(weights, orthogonal_each(updates), strict=True):
                weight.add_(update, alpha=-group["lr"] * max(1.0, weight.shape[0] / weight.shape[1]) ** 0.5)
        return loss

    def _direction(self, weight: nn.Parameter, most: float) -> Tensor:
        """The gradient with Nesterov momentum: [n, m]."""
        assert weight.grad is not None
        state = self.state[weight]
        if not state:
            state["momentum_buffer"], state["step"] = torch.zeros_like(weight), torch.zeros(())
        state["step"] += 1
        momentum = min(most, 0.85 + float(state["step"]) * 3e-4)
        state["momentum_buffer"].lerp_(weight.grad, 1 - momentum)
        return weight.grad.lerp(state["momentum_buffer"], momentum)


def orthogonal_each(matrices: Sequence[Tensor]) -> list[Tensor]:
    """`orthogonal` of each, all of them known to every process: each is computed by one process and sent to the others."""
    owner = owners([matrix.shape[0] * matrix.shape[1] * min(matrix.shape) for matrix in matrices], distributed.world())
    mine = distributed.rank()
    found = [orthogonal(matrix).contiguous() if who == mine else matrix for matrix, who in zip(matrices, owner, strict=True)]
    if distributed.world() > 1:
        sent = [dist.broadcast(matrix, who, async_op=True) for matrix, who in zip(found, owner, strict=True)]
        for one in sent:
            if one is not None:
                one.wait()
    return found


def owners(costs: Sequence[float], processes: int) -> list[int]:
    """Which process does which task, the dearest first and each by the one that has least to do."""
    load, chosen = [0.0] * processes, [0] * len(costs)
    for task in sorted(range(len(costs)), key=lambda i: -costs[i]):
        chosen[task] = load.index(min(load))
        load[chosen[task]] += costs[task]
    return chosen


def optimizers(module: nn.Module, options: TrainingOptions = DEFAULTS) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the blocks and torch's Adam for the rest, each where there is something for it to do; or torch's
    AdamW for everything."""
    fused = all(weight.device.type in ("cpu", "cuda") for weight in module.parameters())
    betas = BETA1, options.beta2
    if options.optimizer == "adamw":
        return [torch.optim.AdamW(groups, betas=betas, fused=fused)] if (groups := adamw_groups(module, options)) else []
    if options.weight_decay:
        raise ValueError(f"weight_decay is for the optimizer adamw, found {options.weight_decay} with {options.optimizer}")
    matrices, others = split(module)
    made: list[torch.optim.Optimizer] = []
    if matrices:
        made.append(Muon(matrices.values(), options.matrix_lr))
    if others:
        made.append(torch.optim.Adam(others.values(), options.other_lr, betas=betas, fused=fused))
    return made


def split(module: nn.Module) -> tuple[dict[str, nn.Parameter], dict[str, nn.Parameter]]:
    """Names and weights for Muon (matrices of linear layers, but not the output head) and for Adam (the rest)."""
    matrices, others = {}, {}
    linear = {
        id(layer.weight) for name, layer in module.named_modules() if isinstance(layer, nn.Linear) and not name.endswith("head")
    }
    for name, weight in module.named_parameters():
        (matrices if id(weight) in linear else others)[name] = weight
    return matrices, others


def adamw_groups(module: nn.Module, options: TrainingOptions) -> list[dict[str, Any]]:
    """AdamW's groups of weights: those that decay, those that do not, and what the process learns, where there are any.

    Matrices are weights of two axes or more that are no embeddings.
    """
    embeddings = {id(layer.weight) for layer in module.modules() if isinstance(layer, nn.Embedding)}
    decayed, kept, learned_by_process = [], [], []
    for name, weight in module.named_parameters():
        matrix = weight.dim() >= 2 and id(weight) not in embeddings
        if name.startswith("objective."):
            learned_by_process.append(weight)
        elif matrix or options.weight_decay_on == "all":
            decayed.append(weight)
        else:
            kept.append(weight)
    groups = [
        {"params": decayed, "lr": options.lr, "weight_decay": options.weight_decay},
        {"params": kept, "lr": options.lr, "weight_decay": 0.0},
        {"params": learned_by_process, "lr": options.process_lr or options.lr, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]

"""Neighbourhoods N(x) of concrete scores: the tokens that may replace a token, one position at a time."""

import torch
from torch import Tensor

SHAPES = ("line", "ring", "complete")


class Neighbourhood:
    """A neighbourhood N(x) = {x with token y at position i : y is a neighbour of x_i, i = 1…L} of sequences.

    The concrete score is c_p(x; N)_n = p(x_n)/p(x) − 1 for x_n ∈ N(x) (arXiv:2211.00802). N may be asymmetric.

    neighbours: [S, S] bool, true at [x, y] where y is a neighbour of x. The diagonal is ignored, and each token needs at least
        one neighbour.
    """

    def __init__(self, neighbours: Tensor):
        found = torch.as_tensor(neighbours)
        if found.dim() != 2 or found.shape[0] != found.shape[1] or found.dtype != torch.bool:
            raise ValueError(f"neighbours must be a bool matrix [S, S], found {found.dtype} {list(found.shape)}")
        self.neighbours = found & ~torch.eye(len(found), dtype=torch.bool, device=found.device)
        self.degree = self.neighbours.sum(1)
        if bool((self.degree == 0).any()):
            raise ValueError(f"each token needs a neighbour, found none of token {int((self.degree == 0).nonzero()[0])}")
        self._order = (~self.neighbours).int().argsort(dim=1, stable=True)  # [x, k]: the k-th neighbour of x, for k < degree

    @staticmethod
    def named(shape: str, states: int) -> "Neighbourhood":
        """Return the neighbourhood of this name over tokens 0…S−1.

        shape: line (y = x ± 1), ring (the same, and the last token is next to the first) or complete (every other token).
        states: S, at least 2.
        """
        if shape not in SHAPES:
            raise ValueError(f"a neighbourhood is one of {', '.join(SHAPES)}, found {shape!r}")
        if states < 2:
            raise ValueError(f"a neighbourhood needs at least two tokens, found {states}")
        distance = (torch.arange(states)[:, None] - torch.arange(states)).abs()
        if shape == "complete":
            return Neighbourhood(distance > 0)
        return Neighbourhood((distance == 1) | ((shape == "ring") & (distance == states - 1)))

    def __len__(self) -> int:
        return len(self.neighbours)

    def of(self, x: Tensor) -> Tensor:
        """Return which tokens are neighbours of x: [*P] long → [*P, S] bool."""
        return self.neighbours.to(x.device)[x]

    def propose(self, x: Tensor, u: Tensor) -> Tensor:
        """Return a neighbour of each token, uniform over its neighbours for u uniform on [0, 1): [*P], [*P] → [*P] long."""
        degree = self.degree.to(x.device)[x]
        return self._order.to(x.device)[x, (u * degree).long().clamp_max(degree - 1)]

    def log_proposal_ratio(self, x: Tensor, y: Tensor) -> Tensor:
        """Return log q(x|y)/q(y|x) = log |N(x)|/|N(y)| of that proposal, −∞ where x is no neighbour of y: [*P] → [*P]."""
        degree = self.degree.to(x.device).double()
        back = self.neighbours.to(x.device)[y, x]
        return (degree[x] / degree[y]).log().masked_fill(~back, -torch.inf)

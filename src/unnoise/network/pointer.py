"""A pointer: tokens of the text itself are made likelier where they fit, so that a name that stands in it once is found again.

Pointer sentinel mixture models (Merity et al. 2016, arXiv:1609.07843): next to the K outputs o_v of the head there is a score
a_j for each token x_j that a position sees, and all share one softmax,

    p(v) ∝ e^{o_v} + Σ_{j: x_j = v} e^{a_j},    a_j = q·k_j/√D + c.

A vocabulary has to be learned token by token; what a pointer learns, to compare the surroundings of two places, holds for all.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unnoise.network.base import Cache
from unnoise.network.visibility import Visibility

FEATURES = 64  # of queries and keys
HIGHEST = 80.0  # of a_j − o_v, whose exponential must be finite


class Pointer(nn.Module):
    """Adds Σ_{j: x_j = v} e^{a_j} to e^{o_v}: outputs [n, K] → [n, K], or [B, L, K] → [B, L, K].

    c = w·h + b is how much a position copies at all; at first 0. Masks, and what a position does not see, are not copied.
    """

    def __init__(self, width: int, layer: int):
        super().__init__()
        self.layer = layer  # of the cache
        features = min(FEATURES, width)
        self.query = nn.Linear(width, features, bias=False)
        self.key = nn.Linear(width, features, bias=False)
        self.level = nn.Linear(width, 1)
        nn.init.zeros_(self.level.weight)
        nn.init.zeros_(self.level.bias)

    def forward(
        self,
        output: Tensor,
        asked: Tensor,
        states: Tensor,
        x: Tensor,
        where: Tensor | None,
        causal: bool,
        cache: Cache | None,
        visibility: Visibility | None,
    ) -> Tensor:
        """output: o, [n, K] at `where` or [B, L, K]. asked: the features that o was made of, [n, D] or [B, L, D]. states: what
        the keys are made of, [B, L, D]. x: the tokens, [B, L]."""
        if x.is_floating_point():
            raise ValueError("a network with a pointer reads tokens, not numbers: build it without")
        vocab = output.shape[-1]
        if where is None:
            where = torch.ones_like(x, dtype=torch.bool)
        q, k = unit(self.query(asked)).reshape(-1, self.query.out_features), unit(self.key(states))
        tokens = x
        if cache is not None:
            k, tokens = (part[:, 0] for part in cache.extend(self.layer, k[:, None], tokens[:, None]))
        q = q.new_zeros(*x.shape, q.shape[-1]).masked_scatter(where[..., None], q)
        copied = (tokens < vocab)[:, None] & seen(x.shape[1], tokens.shape[1], causal, visibility, x.device)
        copied = copied.expand(*x.shape, -1)  # [B, L, S]
        tokens = torch.where(tokens < vocab, tokens, 0)
        same = tokens[:, :, None] == tokens[:, None]  # [B, S, S]
        first = ~same.tril(-1).any(2)  # each token is added to once
        scores = (q @ k.transpose(1, 2))[where] * q.shape[-1] ** -0.5 + self.level(asked).reshape(-1, 1)  # [n, S]
        at = tokens[:, None].expand_as(copied)[where]
        flat = output.reshape(-1, vocab)
        ratios = (scores - flat.gather(1, at)).clamp_max(HIGHEST).exp() * copied[where]  # e^{a_j − o_v}
        ratios = ratios.new_zeros(copied.shape).masked_scatter(where[..., None], ratios) @ same.to(ratios.dtype)
        more = (ratios[where].log1p() * first[:, None].expand_as(copied)[where]).to(flat.dtype)
        return flat.scatter_add(1, at, more).view_as(output)


def unit(x: Tensor) -> Tensor:
    """Layer norm without weights along the last axis."""
    return F.layer_norm(x, x.shape[-1:])


def seen(length: int, total: int, causal: bool, visibility: Visibility | None, device: torch.device) -> Tensor:
    """Whether each of the last `length` positions sees each of `total`, of which the first are cached: [1 or B, L or 1, S]."""
    if visibility is not None and visibility.attention_mask is not None:
        mask = visibility.attention_mask
        return mask[:, 0] if mask.dim() == 4 else mask[None]
    everything = torch.ones(1, length, total, dtype=torch.bool, device=device)
    return everything.tril(total - length) if causal else everything

"""A pointer head, which can copy tokens of the sequence (Merity et al. 2016, arXiv:1609.07843).

In addition to the K outputs o_v of the head there is a score a_j for each visible token x_j, and the outputs become

    o'_v = log(e^{o_v} + Σ_{j: x_j = v} e^{a_j}),    a_j = q·k_j/√F + c,

so the vocabulary and the sequence share one softmax; if the outputs are log ratios, the scores are added to the ratios. The
vocabulary has to be learned token by token, but comparing the contexts of two positions works for all tokens.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unnoise.network.base import Cache
from unnoise.network.visibility import Visibility

FEATURES = 64  # F of queries and keys, at most


class Pointer(nn.Module):
    """o [n, K] → o' [n, K], or [B, L, K] → [B, L, K].

    q and k are layer-normed, so |q·k|/√F ≤ √F. c = w·h + b controls how much a position copies; it is 0 at initialisation.
    Masks and tokens that are not visible from a position are not copied.
    """

    def __init__(self, width: int, layer: int):
        super().__init__()
        self.layer = layer  # under which the cache keeps keys [B, 1, n, F] and tokens [B, 1, n]
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
        """Return o'.

        output: o, [n, K] at `where` or [B, L, K].
        asked: the normed features h from which o is computed, [n, D] or [B, L, D].
        states: the normed features of the keys, [B, L, D].
        x: the tokens, [B, L].
        """
        if x.is_floating_point():
            raise ValueError("a pointer needs tokens, found a state of real numbers: build the network with pointer=False")
        vocab = output.shape[-1]
        if where is None:
            where = torch.ones_like(x, dtype=torch.bool)
        row = where.nonzero()[:, 0]
        q, k = (F.layer_norm(part, part.shape[-1:]) for part in (self.query(asked), self.key(states)))
        tokens = x
        if cache is not None:
            k, tokens = (part[:, 0] for part in cache.extend(self.layer, k[:, None], tokens[:, None]))
        copied = (tokens < vocab)[:, None] & seen(x.shape[1], tokens.shape[1], causal, visibility, x.device)
        copied = copied.expand(*x.shape, -1)[where]  # [n, S]
        tokens = torch.where(tokens < vocab, tokens, 0)
        first = (tokens[:, :, None] == tokens[:, None]).byte().argmax(2)[row]  # first position of each token
        q = q.new_zeros(*x.shape, q.shape[-1]).masked_scatter(where[..., None], q)
        scores = (q @ k.transpose(1, 2))[where] * q.shape[-1] ** -0.5 + self.level(asked).reshape(-1, 1)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(~copied, -torch.inf)
        highest = scores.detach().amax(1, keepdim=True).clamp_min(torch.finfo(scores.dtype).min)
        sums = torch.zeros_like(scores).scatter_add(1, first, (scores - highest).exp())  # Σ over the positions of a token
        there = sums > 0
        log_sums = torch.where(there, sums, 1.0).log() + highest
        flat, at = output.reshape(-1, vocab), tokens[row]
        now = flat.gather(1, at).to(scores.dtype)
        more = torch.where(there, torch.logaddexp(now, torch.where(there, log_sums, now)) - now, 0.0)  # o' − o
        return flat.scatter_add(1, at, more.to(flat.dtype)).view_as(output)


def seen(length: int, total: int, causal: bool, visibility: Visibility | None, device: torch.device) -> Tensor:
    """Return which of `total` positions, the first of them cached, are visible from the last `length`: [1 or B, L or 1, S]."""
    if visibility is not None and visibility.attention_mask is not None:
        mask = visibility.attention_mask
        return mask[:, 0] if mask.dim() == 4 else mask[None]
    everything = torch.ones(1, length, total, dtype=torch.bool, device=device)
    return everything.tril(total - length) if causal else everything

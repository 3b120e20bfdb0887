"""A pointer: tokens of the text itself are made likelier where they fit, so that a name that stands in it once is found again.

Pointer sentinel mixture models (Merity et al. 2016, arXiv:1609.07843): next to the K outputs o_v of the head there is a score
a_j for each token x_j that a position sees, and the outputs become

    o'_v = log(e^{o_v} + Σ_{j: x_j = v} e^{a_j}),    a_j = q·k_j/√F + c,

so that a softmax over them is shared by the vocabulary and the text; where outputs are log ratios, ratios are added to. A
vocabulary has to be learned token by token; what a pointer learns, to compare the surroundings of two places, holds for all.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from unnoise.network.base import Cache
from unnoise.network.visibility import Visibility

FEATURES = 64  # F of queries and keys, at most


class Pointer(nn.Module):
    """o [n, K] → o' [n, K], or [B, L, K] → [B, L, K].

    q and k are layer-normed, so that |q·k|/√F ≤ √F. c = w·h + b is how much a position copies at all, 0 at first. Masks, and
    what a position does not see, are not copied.
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
        """output: o, [n, K] at `where` or [B, L, K]. asked: the normed features h that o is made of, [n, D] or [B, L, D].
        states: what the keys are made of, normed too, [B, L, D]. x: the tokens, [B, L]."""
        if x.is_floating_point():
            raise ValueError("a network with a pointer reads tokens, not numbers: build it without")
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
        first = (tokens[:, :, None] == tokens[:, None]).byte().argmax(2)[row]  # where the token of each place stands first
        q = q.new_zeros(*x.shape, q.shape[-1]).masked_scatter(where[..., None], q)
        scores = (q @ k.transpose(1, 2))[where] * q.shape[-1] ** -0.5 + self.level(asked).reshape(-1, 1)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(~copied, -torch.inf)
        highest = scores.detach().amax(1, keepdim=True).clamp_min(torch.finfo(scores.dtype).min)
        sums = torch.zeros_like(scores).scatter_add(1, first, (scores - highest).exp())  # Σ over the places of a token
        there = sums > 0
        log_sums = torch.where(there, sums, 1.0).log() + highest
        flat, at = output.reshape(-1, vocab), tokens[row]
        now = flat.gather(1, at).to(scores.dtype)
        more = torch.where(there, torch.logaddexp(now, torch.where(there, log_sums, now)) - now, 0.0)  # o' − o
        return flat.scatter_add(1, at, more.to(flat.dtype)).view_as(output)


def seen(length: int, total: int, causal: bool, visibility: Visibility | None, device: torch.device) -> Tensor:
    """Whether each of the last `length` positions sees each of `total`, of which the first are cached: [1 or B, L or 1, S]."""
    if visibility is not None and visibility.attention_mask is not None:
        mask = visibility.attention_mask
        return mask[:, 0] if mask.dim() == 4 else mask[None]
    everything = torch.ones(1, length, total, dtype=torch.bool, device=device)
    return everything.tril(total - length) if causal else everything

"""Masked noise combined with a Markov chain: tokens move between neighbours until they are masked (D3PM, arXiv:2107.03006).

The generator is the sum of the chain's generator on the K tokens and of masking at rate 1. The two commute. With α = α_{t|s} of
the masks and the chain's transition T, q(x_t | x_s) is α·T(s→t) among tokens and 1 − α into the mask, which is absorbing.
"""

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from unnoise.process.base import Process, Reverse
from unnoise.process.markov import Markov
from unnoise.schedule import Schedule


class MaskedMarkov(Process):
    """Masking with one schedule and a `Markov` chain between tokens with another, for example Markov.nearest(…).

    The mask is index K. Every position contributes to the loss, because an unmasked token may have moved.
    """

    def __init__(self, chain: Markov, schedule: Schedule, reverse: Reverse = "plug-in"):
        super().__init__(chain.vocab, chain.vocab + 1, schedule, reverse)
        if float(schedule.alpha(torch.ones((), dtype=torch.float64))) > 0:
            raise ValueError("MaskedMarkov needs a schedule with α(1) = 0, such as Linear()")
        self.chain = chain

    @property
    def mask(self) -> int:
        """Index of the mask, K."""
        return self.vocab

    def _kept(self, s: Tensor | None, t: Tensor) -> Tensor:
        """Return α_{t|s} of the masks: [*P]."""
        return self.schedule.alpha(t) if s is None else self.schedule.alpha(t) / self.schedule.alpha(s)

    def transition(self, s: Tensor | None, t: Tensor) -> Tensor:
        kept = self._kept(s, t)[..., None, None]
        tokens = torch.cat([kept * self.chain.transition(s, t), (1 - kept).expand(*t.shape, self.vocab, 1)], -1)
        return torch.cat([tokens, self.stationary().to(tokens).expand(*t.shape, 1, -1)], -2)

    def rate(self, t: Tensor) -> Tensor:
        into_mask = self.schedule.rate(t)[..., None, None].expand(*t.shape, self.vocab, 1)
        tokens = self.chain.rate(t) - into_mask * torch.eye(self.vocab, dtype=t.dtype, device=t.device)
        return pad(torch.cat([tokens, into_mask], -1), (0, 0, 0, 1))

    def stationary(self) -> Tensor:
        return one_hot(torch.tensor(self.mask, device=self.device), self.states).double()

    # ---- primitives, from the chain's ---------------------------------------------------------------------------------

    def push(self, weights: Tensor, t: Tensor) -> Tensor:
        kept = self._kept(None, t)[..., None].to(weights.dtype)
        return torch.cat([kept * self.chain.push(weights, t), (1 - kept) * weights.sum(-1, keepdim=True)], -1)

    def row(self, x_s: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        kept = self._kept(s, t)[..., None]
        token = torch.cat([kept * self.chain.row(x_s.clamp_max(self.vocab - 1), s, t), 1 - kept], -1)
        return torch.where((x_s == self.mask)[..., None], self.stationary().to(token), token)

    def column(self, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        kept = self._kept(s, t)[..., None]
        token = pad(kept * self.chain.column(x_t.clamp_max(self.vocab - 1), s, t), (0, 1))
        masked = pad((1 - kept).expand_as(token[..., :-1]), (0, 1), value=1.0)
        return torch.where((x_t == self.mask)[..., None], masked, token)

    def unpush(self, ratios: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        kept = self._kept(s, t)[..., None].to(ratios.dtype)
        tokens = self.chain.unpush(ratios[..., :-1], s, t) / kept
        return torch.cat([tokens, ratios[..., -1:] - (1 - kept) * tokens.sum(-1, keepdim=True)], -1)

    def rates_into(self, x_t: Tensor, t: Tensor) -> Tensor:
        token = pad(self.chain.rates_into(x_t.clamp_max(self.vocab - 1), t), (0, 1))
        masked = pad(self.schedule.rate(t)[..., None].expand_as(token[..., :-1]), (0, 1))
        return torch.where((x_t == self.mask)[..., None], masked, token)

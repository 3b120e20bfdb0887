"""Masked (absorbing) noise: a token is kept with probability α(t) and otherwise replaced by the mask, index K.

In reverse, unmasked tokens stay, and a mask becomes x_0 with probability c = (α_s − α_t)/(1 − α_t) = 1 − (1−α_s)/(1−α_t).
Papers: D3PM (arXiv:2107.03006), SEDD (2310.16834), MDLM (2406.07524), MD4 and GenMD4 (2406.04329).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from unnoise.prediction import MeanPrediction, TokenPrediction
from unnoise.process.process_base import Process, gather
from unnoise.rng import Generator, uniform
from unnoise.schedule import PerToken, Schedule


class Masked(Process):
    """Absorbing noise over K tokens and a mask (index K), with one schedule for all tokens or one per token (PerToken).

    If α(1) = ε > 0, sampling still starts from masks, and each position is revealed with probability ε at t = 1. This costs
    ε·Σ_i −log μ_i(x_0 | all masks) nats, which `Elbo` adds as a boundary term.
    """

    def __init__(self, vocab: int, schedule: Schedule):
        super().__init__(vocab, vocab + 1, schedule)
        self.mask = vocab
        self.per_token = isinstance(schedule, PerToken)
        if isinstance(schedule, PerToken) and schedule.vocab != vocab:
            raise ValueError(f"Masked(vocab={vocab}) needs PerToken({vocab}), found PerToken({schedule.vocab})")

    def conditions_exactly(self, known: Sequence[bool]) -> bool:
        return True

    # ---- α and its kin with a last axis over tokens: [*P] → [*P, K] per token, [*P, 1] otherwise ---------------------

    def _over_tokens(self, values: Tensor) -> Tensor:
        return values if self.per_token else values[..., None]

    def _noise(self, t: Tensor) -> Tensor:
        return self._over_tokens(self.schedule.noise(t))

    def _alpha(self, t: Tensor) -> Tensor:
        return self._over_tokens(self.schedule.alpha(t))

    def _of(self, values: Tensor, x: Tensor) -> Tensor:
        """Return the entry of token x: [*P, K or 1] → [*P]."""
        return gather(values, x) if self.per_token else values[..., 0]

    def reveal(self, s: Tensor, t: Tensor) -> Tensor:
        """Return c = (α_s − α_t)/(1 − α_t), the probability that a mask at t is revealed by s: [*P, K or 1]."""
        return 1 - self._noise(s) / self._noise(t)

    def _kept_and_lost(self, s: Tensor | None, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return α_{t|s} and 1 − α_{t|s}: [*P, K or 1] each."""
        if s is None:
            return self._alpha(t), self._noise(t)
        signal = self._alpha(s)
        return self._alpha(t) / signal, (self._noise(t) - self._noise(s)) / signal

    # ---- matrices ---------------------------------------------------------------------------------------------------

    def transition(self, s: Tensor | None, t: Tensor) -> Tensor:
        kept, lost = self._kept_and_lost(s, t)
        shape = (*t.shape, self.vocab)
        rows = torch.cat([torch.diag_embed(kept.expand(shape)), lost.expand(shape)[..., None]], -1)
        mask_row = one_hot(torch.tensor(self.mask, device=t.device), self.states).to(rows).expand(*t.shape, 1, -1)
        return torch.cat([rows, mask_row], -2)

    def rate(self, t: Tensor) -> Tensor:
        beta = self._over_tokens(self.schedule.rate(t)).expand(*t.shape, self.vocab)
        rows = torch.cat([torch.diag_embed(-beta), beta[..., None]], -1)
        return pad(rows, (0, 0, 0, 1))

    def stationary(self) -> Tensor:
        return one_hot(torch.tensor(self.mask, device=self.device), self.states).double()

    # ---- primitives -------------------------------------------------------------------------------------------------

    def push(self, weights: Tensor, t: Tensor) -> Tensor:
        kept, lost = (value.to(weights.dtype) for value in self._kept_and_lost(None, t))
        return torch.cat([weights * kept, (weights * lost).sum(-1, keepdim=True)], -1)

    def column(self, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        kept, lost = self._kept_and_lost(s, t)
        into_mask = pad(lost.expand(*x_t.shape, self.vocab), (0, 1), value=1.0)
        stayed = one_hot(x_t, self.states) * pad(kept.expand(*x_t.shape, self.vocab), (0, 1))
        return torch.where((x_t == self.mask)[..., None], into_mask, stayed)

    def unpush(self, ratios: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        kept, lost = (value.to(ratios.dtype) for value in self._kept_and_lost(s, t))
        tokens = ratios[..., :-1] / kept
        return torch.cat([tokens, ratios[..., -1:] - (tokens * lost).sum(-1, keepdim=True)], -1)

    def rates_into(self, x_t: Tensor, t: Tensor) -> Tensor:
        beta = self._over_tokens(self.schedule.rate(t)).expand(*x_t.shape, self.vocab)
        return pad(torch.where((x_t == self.mask)[..., None], beta, torch.zeros_like(beta)), (0, 1))

    # ---- forward ----------------------------------------------------------------------------------------------------

    def active(self, x_t: Tensor) -> Tensor:
        return x_t == self.mask

    def active_share(self, t: Tensor) -> Tensor:
        noise = self.schedule.noise(t).detach()
        return noise.mean(-1) if self.per_token else noise

    def prior(self, shape: tuple[int, ...], generator: Generator = None) -> Tensor:
        return torch.full(shape, self.mask, device=self.anchor.device)

    def noised(self, x_s: Tensor, s: Tensor | None, t: Tensor, generator: Generator = None) -> Tensor:
        with torch.no_grad():
            if s is not None or self.per_token:
                lost = self._of(self._kept_and_lost(s, t)[1], x_s.clamp_max(self.vocab - 1))
            else:
                lost = self.schedule.noise(t)
            hidden = uniform(x_s.shape, x_s.device, generator) < lost
        return x_s.masked_fill(hidden, self.mask)

    def log_prob(self, x_t: Tensor, x: Tensor, t: Tensor) -> Tensor:
        kept, hidden = self._of(self._alpha(t), x).log(), self._of(self._noise(t), x).log()
        kept = kept.masked_fill(x_t != x, -torch.inf)
        return torch.where(x_t == self.mask, hidden, kept)

    # ---- reverse ----------------------------------------------------------------------------------------------------

    def _carry_over(self, at_mask: Tensor, x_t: Tensor) -> Tensor:
        """Return log-probabilities `at_mask` if x_t is the mask, and all probability on x_t otherwise: [*P, K or S]."""
        masked = (x_t == self.mask)[..., None]
        if bool(masked.all()):
            return at_mask
        certain = torch.full_like(at_mask, -torch.inf)
        certain = certain.scatter(-1, x_t.clamp_max(at_mask.shape[-1] - 1)[..., None], 0.0)
        return torch.where(masked, at_mask, certain)

    def mean_clean(self, log_probs: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        return self._carry_over(log_probs, x_t)

    def mean_ratios(self, log_probs: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Return log of s_y = α/(1−α)·μ_y at a mask; unmasked tokens only have s_mask = (1−α)/α: [*P, K] → [*P, S]."""
        log_odds = (self._alpha(t) / self._noise(t)).log().to(log_probs.dtype)
        at_mask = pad(log_probs + log_odds, (0, 1))
        if bool((x_t == self.mask).all()):
            return at_mask
        elsewhere = self._carry_over(torch.zeros_like(at_mask), x_t)
        real = x_t.clamp_max(self.vocab - 1)
        elsewhere = torch.cat([elsewhere[..., :-1], -self._of(log_odds, real)[..., None]], -1)
        return torch.where((x_t == self.mask)[..., None], at_mask, elsewhere)

    def mean_reverse(self, log_probs: Tensor, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """Return log p(x_s | x_t): a mask becomes i with probability c_i·μ_i, or stays a mask: [*P, K] → [*P, S]."""
        reveal = self.reveal(s, t).to(log_probs.dtype)
        stay = ((1 - reveal) * log_probs.exp()).sum(-1, keepdim=True)
        return self._carry_over(torch.cat([log_probs + reveal.log(), stay.log()], -1), x_t)

    def scaled_score(self, raw: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Return log s_y = raw_y − log K + log α/(1−α), SEDD's scaling, not normalized: [*P, K] → [*P, S]."""
        return self.mean_ratios(raw - math.log(self.vocab), x_t, t)

    # ---- bound ------------------------------------------------------------------------------------------------------

    def integrand(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """Compute the integrand at the masks in closed form; it is zero elsewhere: [*P].

        Mean: h·(−log μ_{x_0}), h = −α′/(1−α) (MDLM, MD4); per token Σ_i h_i μ_i − h_{x_0}(1 + log μ_{x_0}) (GenMD4).
        Score: β·[ Σ_{y<K} s_y − ρ log s_{x_0} + ρ(log ρ − 1) ], ρ = α/(1−α) (SEDD absorb).
        """
        match prediction:
            case MeanPrediction(log_probs):
                hazard = self.schedule.hazard(t).to(log_probs.dtype)  # [*P], or [*P, K] per token
                log_mu = log_probs.gather(-1, x[..., None])[..., 0]
                if self.per_token:
                    own = gather(hazard.expand_as(log_probs), x)
                    nats = (hazard * log_probs.exp()).sum(-1) - own * (1 + log_mu)
                else:
                    nats = -hazard * log_mu
            case _:
                log_s = prediction.ratios(self, x_t, t)
                beta = self._over_tokens(self.schedule.rate(t)).to(log_s.dtype)
                rho = self._of(self._alpha(t) / self._noise(t), x).to(log_s.dtype)
                own = rho * (rho.log() - 1 - gather(log_s, x))
                nats = (beta * log_s[..., :-1].exp()).sum(-1) + self._of(beta, x) * own
        return torch.where(x_t == self.mask, nats, torch.zeros_like(nats))

    def kl(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """Compute −c log μ_{x_0} at the masks (mean); per token + (1−c_{x_0}) log[ (1−c_{x_0}) / (1 − Σ_i c_i μ_i) ]: [*P]."""
        if not isinstance(prediction, MeanPrediction):
            return super().kl(prediction, x, x_t, s, t)
        log_probs = prediction.log_probs
        reveal = self.reveal(s, t).to(log_probs.dtype)
        own = self._of(reveal, x)
        nats = -own * gather(log_probs, x)
        if self.per_token:
            stay = ((1 - reveal) * log_probs.exp()).sum(-1)
            stays = own < 1
            odds = torch.where(stays, (1 - own) / torch.where(stays, stay, torch.ones_like(stay)), torch.ones_like(own))
            nats = nats + (1 - own) * odds.log()
        return torch.where(x_t == self.mask, nats, torch.zeros_like(nats))

    def noise_kl(self, x: Tensor) -> Tensor:
        """Return zero; the cost of the residual signal replaces KL( q(x_1|x_0) ‖ all masks ): [*P]."""
        return torch.zeros(x.shape, dtype=torch.float64, device=x.device)

    @property
    def terminal_alpha(self) -> float:
        """α(1)."""
        with torch.no_grad():
            return float(self.schedule.alpha(torch.ones((), dtype=torch.float64, device=self.anchor.device)).max())

    def cross_entropy(self, prediction: TokenPrediction, x: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        if isinstance(prediction, MeanPrediction):  # carry-over at unmasked tokens
            log_mu = prediction.log_probs.gather(-1, x[..., None])[..., 0]
            return torch.where(x_t == self.mask, -log_mu, torch.where(x_t == x, 0.0, torch.inf))
        return super().cross_entropy(prediction, x, x_t, t)

    def reconstruction(self, x: Tensor, t: Tensor) -> Tensor:
        """Compute E −log p(x_0 | x_t) without a network, with p(x_0 = i | mask) ∝ 1 − α_i(t) as in GenMD4: [*P].

        (1 − α_{x_0})·(−log[ (1−α_{x_0}) / Σ_i (1−α_i) ]); for one schedule (1 − α) log K.
        """
        times, at = t.unique(return_inverse=True)  # few times: [times, K] is smaller than [*P, K]
        noise = self._noise(times).expand(*times.shape, self.vocab)
        return -noise[at, x] * torch.log_softmax(noise.log(), -1)[at, x]

    # ---- generation -------------------------------------------------------------------------------------------------

    def jump_steps(self, x: Tensor, free: Tensor, times: list[float], generator: Generator = None) -> Tensor | None:
        """Sample the step in which each mask is revealed; None with one schedule per token.

        A mask at t_0 is still a mask at t_i with probability h_i = (1 − α(t_i))/(1 − α(t_0)), so with u uniform on [0, 1) it is
        revealed in the step with h_{i+1} ≤ u < h_i.
        """
        if self.per_token:
            return None
        noise = self.schedule.noise(torch.tensor(times, dtype=torch.float64, device=x.device))
        hidden = (noise / noise[0]).flip(0)  # searchsorted needs ascending values
        left = torch.searchsorted(hidden, uniform(x.shape, x.device, generator), right=True)  # steps after the reveal
        return torch.where(self.active(x) & free, len(times) - 1 - left, len(times))

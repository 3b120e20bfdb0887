"""The bound of masked noise with a random number of masks instead of a random time, which has much less variance.

A model that ignores t unmasks tokens one at a time in a random order (ARDM, arXiv:2110.02037):
−log p(x) ≤ L·E_{k ~ U{1…L}} E_{k random positions masked} (1/k) Σ_masked −log μ(x^i | the rest).

In general, at noise level n = 1 − α each of m tokens is masked with probability n, and the integrand is dn/n·Σ_masked −log μ.
Given their number k, the masked positions are a random subset, so for a network that ignores t the integral over n is a sum:

    bound = Σ_k w_k E_{k of m masked} Σ_masked −log μ(x^i | the rest),
    w_k = ( P(N_1 ≥ k) − P(N_0 ≥ k) )/k + P(N_0 = k) + α(1)·[k = m],   N_j ~ Binomial(m, 1 − α(j)).

The second and third terms of w_k are the boundary terms at data and noise. With α(0) = 1 and α(1) = 0, w_k = 1/k. The sum
equals the continuous-time bound `Elbo` of the same process for every schedule.

A network that takes t receives the time at which the k-th mask appears: n ~ Beta(k, m − k + 1), the k-th smallest of m uniform
numbers, with weight 1/k if 1 − α(0) ≤ n ≤ 1 − α(1) and 0 otherwise. The boundary terms are then added as in `Elbo`.
"""

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, predict
from unnoise.objective.elbo import Elbo
from unnoise.objective.losses import data_end, noise_end
from unnoise.objective.objective_base import Objective, sum_rows, terms_at
from unnoise.objective.times import stratified
from unnoise.process.masked import Masked
from unnoise.process.process_base import Process
from unnoise.process.state import position_times
from unnoise.rng import Generator, uniform


class AnyOrder(Objective):
    """L/k·Σ over k hidden positions of −log μ(x^i | x^{visible}), k uniform in 1…L and stratified over the batch: [B].

    A bound on −log p of every time-free masked mean. The denoiser is given t = k/L.
    """

    process: Masked

    def __init__(self, process: Process):
        super().__init__()
        if not isinstance(process, Masked) or process.per_token:
            raise ValueError("AnyOrder needs a Masked process with one schedule for all tokens")
        self.process = process

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        self.process.check_tokens(x)
        batch, length = x.shape
        count = (stratified(batch, x.device, generator) * length).long() + 1
        order = uniform(x.shape, x.device, generator).argsort(1).argsort(1)
        return self.at(denoiser, x, order < count[:, None])

    def at(self, denoiser: Denoiser, x: Tensor, hidden: Tensor) -> Tensor:
        """Compute the value for given masked positions: x [B, L], hidden [B, L] bool → [B]."""
        count = hidden.sum(1)
        t = count.double() / x.shape[1]
        x_t = x.masked_fill(hidden, self.process.mask)
        prediction = predict(denoiser, self.process, x_t, t, hidden)
        nats = self.process.cross_entropy(prediction, x[hidden], x_t[hidden], position_times(t, x)[hidden])
        return x.shape[1] / count.to(nats.dtype) * sum_rows(nats, hidden)


class MaskCounts:
    """`Elbo` or `AnyOrder` of masked noise with a random number of masks, on the free positions given the others.

    bound: bound in continuous time of a Masked process with one schedule for all tokens, for a denoiser that returns a mean.
    time_free: whether the denoiser ignores t.
    """

    def __init__(self, bound: Elbo | AnyOrder, time_free: bool):
        process = bound.process
        if not isinstance(process, Masked) or process.per_token:
            raise ValueError("mask counts need a Masked process with one schedule for all tokens")
        self.bound, self.process = bound, process
        self.takes_time = isinstance(bound, Elbo) and not time_free
        self.least, self.most, self.signal = 0.0, 1.0, 0.0  # noise at both ends of the integral, α(1)
        if isinstance(bound, Elbo):
            ends = torch.tensor([bound.start, 1.0], dtype=torch.float64, device=process.device)
            with torch.no_grad():
                self.least, self.most = process.schedule.noise(ends).tolist()
            self.signal = process.terminal_alpha
        self._weights: dict[int, Tensor] = {}

    @staticmethod
    def of(bound: Objective, time_free: bool) -> "MaskCounts | None":
        """Return the mask counts of a bound of masked noise, one schedule, in continuous time; None for other objectives."""
        if type(bound) not in (Elbo, AnyOrder):  # a subclass may be another bound, or none
            return None
        assert isinstance(bound, Elbo | AnyOrder)
        process = bound.process
        discrete = isinstance(bound, Elbo) and (bound.steps is not None or (bound.network_free and bound.starts_noisy))
        return None if discrete or not isinstance(process, Masked) or process.per_token else MaskCounts(bound, time_free)

    def weights(self, tokens: int) -> Tensor:
        """Return w_k for k = 0…m, with w_0 = 0: [m + 1] float64."""
        if tokens not in self._weights:
            k = torch.arange(tokens + 1, dtype=torch.float64)
            late, early = binomial(tokens, self.most, self.signal), binomial(tokens, self.least, 1 - self.least)
            w = (late - early).flip(0).cumsum(0).flip(0) / k.clamp_min(1) + early
            w[-1] += self.signal
            w[0] = 0
            self._weights[tokens] = w
        return self._weights[tokens]

    def draw(self, denoiser: Denoiser, x: Tensor, free: Tensor, v: Tensor, generator: Generator) -> Tensor:
        """Sample the bound without `fixed`, with k = ⌊v·m⌋ + 1 masks, v [B] uniform on [0, 1): [B]."""
        self.process.check_tokens(x)
        tokens = free.sum(1)
        count = ((v * tokens).long() + 1).minimum(tokens.clamp_min(1))
        order = torch.where(free, uniform(x.shape, x.device, generator), 2.0)
        noise = order.sort(1).values.gather(1, count[:, None] - 1)[:, 0]
        hidden = (order <= noise[:, None]) & free
        if not self.takes_time:
            return tokens * self.weight(tokens, count) * self.cross_entropy(denoiser, x, hidden, count / tokens.clamp_min(1))
        assert isinstance(self.bound, Elbo)
        inside = (noise >= self.least) & (noise <= self.most)
        t = self.process.schedule.inverse(1 - noise.clamp_max(1.0))
        nats = tokens / count * inside * self.cross_entropy(denoiser, x, hidden, t)
        return nats + data_end(self.bound, denoiser, x, free, generator)

    def fixed(self, denoiser: Denoiser, x: Tensor, free: Tensor) -> Tensor:
        """Compute the part of the bound that is not random: [B]."""
        if self.takes_time and isinstance(self.bound, Elbo):
            return noise_end(self.bound, denoiser, x, free)
        return x.new_zeros(len(x), dtype=torch.float64)

    def choice(self, denoiser: Denoiser, x: Tensor, number: Tensor) -> Tensor:
        """Compute the term of one choice of masks, the bits of number [B] ≥ 1; over 1…2^L − 1 the terms sum to the bound: [B].

        For denoisers that ignore t.
        """
        self.process.check_tokens(x)
        hidden = (number[:, None] >> torch.arange(x.shape[1], device=x.device)) & 1 == 1
        count, tokens = hidden.sum(1), torch.full_like(number, x.shape[1])
        return self.weight(tokens, count) / choices(tokens, count) * self.cross_entropy(denoiser, x, hidden, count / tokens)

    def weight(self, tokens: Tensor, count: Tensor) -> Tensor:
        """Return w_k of m tokens, k of them masked: [B], [B] → [B] float64."""
        w = torch.zeros(len(tokens), dtype=torch.float64, device=tokens.device)
        for m in tokens.unique().tolist():
            here = tokens == m
            w[here] = self.weights(m).to(w.device)[count[here]]
        return w

    def cross_entropy(self, denoiser: Denoiser, x: Tensor, hidden: Tensor, t: Tensor) -> Tensor:
        """Return Σ_hidden −log μ(x^i | the rest, t): [B] float64."""
        x_t = x.masked_fill(hidden, self.process.mask)
        term = self.process.cross_entropy
        return sum_rows(terms_at(term, denoiser, self.process, x=x, x_t=x_t, t=t.double(), where=hidden), hidden).double()


def binomial(tokens: int, p: float, q: float) -> Tensor:
    """Return C(m, k) p^k q^{m−k} for k = 0…m, q = 1 − p: [m + 1] float64."""
    k = torch.arange(tokens + 1, dtype=torch.float64)
    log_c = torch.lgamma(torch.tensor(tokens + 1.0, dtype=torch.float64)) - torch.lgamma(k + 1) - torch.lgamma(tokens - k + 1)
    return (log_c + torch.xlogy(k, p) + torch.xlogy(tokens - k, q)).exp()


def choices(tokens: Tensor, count: Tensor) -> Tensor:
    """Return C(m, k): [*P] float64."""
    m, k = tokens.double(), count.double()
    return (torch.lgamma(m + 1) - torch.lgamma(k + 1) - torch.lgamma(m - k + 1)).exp()

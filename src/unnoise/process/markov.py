"""Noise with any generator matrix Q, alone or combined with masks (D3PM, arXiv:2107.03006).

dq/dσ̄ = q·Q with σ̄(t) = −log α(t), so q(x_t | x_s) = exp((σ̄_t − σ̄_s) Q). If Q is reversible with respect to its stationary
distribution π (every symmetric Q is), D^{1/2} Q D^{−1/2} with D = diag(π) is symmetric. Its eigenvectors then give products
with vectors in O(S²), and exp(Δσ̄ λ) = α_{t|s}^{−λ} is exact even at α = 0. Other generators use the matrix exponential.
"""

import torch
from torch import Tensor
from torch.nn.functional import one_hot, pad

from unnoise.process.process_base import FORGOTTEN, Process, Reverse
from unnoise.process.uniform import Neighbourhood
from unnoise.schedule import PerToken, Schedule, Table

FLOOR = 1e-14  # a transition probability below this is rounding error of the decomposition


class Markov(Process):
    """Noise with generator Q: [K, K], off-diagonal rates ≥ 0, rows summing to zero, one stationary distribution.

    Uniform noise is Q = 1/K − I. The constructors below scale Q to a spectral gap of 1, so that the slowest mode decays as
    α(t).
    """

    generator: Tensor
    left: Tensor
    right: Tensor
    powers: Tensor
    pi: Tensor

    def __init__(self, generator: Tensor, schedule: Schedule, reverse: Reverse = "marginal"):
        if isinstance(schedule, PerToken):
            raise ValueError("Markov needs one schedule for all tokens; PerToken is for Masked")
        q = torch.as_tensor(generator, dtype=torch.float64, device="cpu")
        if q.dim() != 2 or q.shape[0] != q.shape[1]:
            raise ValueError(f"a generator must be a square matrix [K, K], found {list(q.shape)}")
        scale = max(float(q.abs().max()), 1e-300)
        if not torch.isfinite(q).all():
            raise ValueError("a generator's rates must be finite numbers")
        if float((q - torch.diag(q.diag())).min()) < 0:
            raise ValueError("a generator's off-diagonal rates must be ≥ 0, found a negative one")
        if float(q.sum(-1).abs().max()) > 1e-6 * scale:
            raise ValueError(f"a generator's rows must sum to zero, found a sum of {float(q.sum(-1).abs().max()):.4g}")
        super().__init__(len(q), len(q), schedule, reverse)
        q = q - torch.diag(q.sum(-1))
        pi = _stationary(q, scale)
        self.register_buffer("generator", q)
        self.register_buffer("pi", pi)
        root = pi.sqrt()
        symmetric = torch.where(pi > 1e-12, root[:, None] * q / root.clamp_min(1e-6), torch.zeros_like(q))
        skew = float((symmetric - symmetric.T).abs().max())
        self.spectral = bool((pi > 1e-12).all()) and skew < 1e-9 * scale
        if self.spectral:
            eigenvalues, vectors = torch.linalg.eigh((symmetric + symmetric.T) / 2)
            powers = (-eigenvalues).clamp_min(0)
            powers[-1] = 0  # the largest eigenvalue is zero, with eigenvector π
            self.register_buffer("left", vectors / root[:, None])
            self.register_buffer("right", vectors.T * root)
            self.register_buffer("powers", powers)

    @staticmethod
    def banded(vocab: int, schedule: Schedule, width: float = 1.0, reverse: Reverse = "marginal") -> "Markov":
        """Return noise for ordered values (pixel levels): rate ∝ exp(−(i−j)²/(2·width²)) within |i−j| ≤ 4·width, gap 1."""
        if not width > 0:
            raise ValueError(f"banded noise needs a width > 0, found {width}")
        index = torch.arange(vocab, dtype=torch.float64)
        distance = (index[:, None] - index).abs()
        rates = torch.exp(-0.5 * (distance / width) ** 2) * (distance <= max(1.0, 4 * width))
        rates = torch.where(distance == 1, rates.clamp_min(1e-6), rates)
        return Markov(_generator(rates), schedule, reverse)

    @staticmethod
    def nearest(embeddings: Tensor, schedule: Schedule, neighbours: int = 8, reverse: Reverse = "marginal") -> "Markov":
        """Return noise with equal rates between each token and its nearest neighbours, symmetrised, gap 1.

        embeddings: [K, D]; tokens i and j are neighbours if either is among the other's k nearest in Euclidean distance.
        """
        if embeddings.dim() != 2:
            raise ValueError(f"embeddings must have shape [K, D], found {list(embeddings.shape)}")
        vocab = len(embeddings)
        if not 1 <= neighbours < vocab:
            raise ValueError(f"neighbours must lie in 1…{vocab - 1}, found {neighbours}")
        points = embeddings.detach().double().cpu()
        distance = torch.cdist(points, points).fill_diagonal_(torch.inf)
        near = torch.zeros(vocab, vocab, dtype=torch.float64)
        near.scatter_(1, distance.topk(neighbours, largest=False).indices, 1.0)
        return Markov(_generator(near + near.T), schedule, reverse)

    @staticmethod
    def graph(neighbours: Neighbourhood, schedule: Schedule, reverse: Reverse = "marginal") -> "Markov":
        """Return noise that jumps between neighbours at equal rates, with gap 1; the neighbourhood must be symmetric."""
        near = neighbours.neighbours.cpu()
        if not torch.equal(near, near.T):
            raise ValueError("noise on a neighbourhood needs a symmetric one: y is a neighbour of x where x is one of y")
        return Markov(_generator(near.double()), schedule, reverse)

    def mutual_information(self, unigram: Tensor, sigma: Tensor) -> Tensor:
        """Compute I(x_0; x_t) in nats for σ̄(t) = sigma and x_0 ~ unigram: [K], [n] → [n]."""
        p = torch.as_tensor(unigram, dtype=torch.float64)
        found = []
        for one in sigma.double().tolist():
            joint = p[:, None] * torch.linalg.matrix_exp(one * self.generator)
            found.append((torch.xlogy(joint, joint) - torch.xlogy(joint, p[:, None] * joint.sum(0))).sum())
        return torch.stack(found)

    # ---- matrices ---------------------------------------------------------------------------------------------------

    def _ratio(self, s: Tensor | None, t: Tensor) -> Tensor:
        """Return α_{t|s}: [*P]."""
        return self.schedule.alpha(t) if s is None else self.schedule.alpha(t) / self.schedule.alpha(s)

    def transition(self, s: Tensor | None, t: Tensor) -> Tensor:
        ratio = self._ratio(s, t).double()
        if self.spectral:
            modes = ratio[..., None, None] ** self.powers
            return _floor((self.left * modes) @ self.right)
        distinct, which = torch.unique(ratio, return_inverse=True)  # all positions of a sequence have the same time
        matrix = torch.linalg.matrix_exp(-distinct.clamp_min(1e-300).log()[:, None, None] * self.generator)
        return _floor(torch.where((distinct > 0)[:, None, None], matrix, self.pi))[which]

    def rate(self, t: Tensor) -> Tensor:
        return self.schedule.rate(t)[..., None, None] * self.generator

    def stationary(self) -> Tensor:
        return self.pi

    # ---- primitives, O(S²) a position and never a matrix for each ----------------------------------------------------

    def push(self, weights: Tensor, t: Tensor) -> Tensor:
        if not self.spectral:
            return super().push(weights, t)
        modes = self._ratio(None, t).double()[..., None] ** self.powers
        pushed = (weights.double() @ self.left * modes) @ self.right
        scale = weights.double().abs().sum(-1, keepdim=True)
        positive = (weights >= 0).all(-1, keepdim=True)  # negative results are then rounding errors of any size
        return torch.where(positive, _floor(pushed, scale), _floor(pushed.abs(), scale) * pushed.sign()).to(weights.dtype)

    def row(self, x_s: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        if not self.spectral:
            return super().row(x_s, s, t)
        modes = self._ratio(s, t).double()[..., None] ** self.powers
        return _floor((self.left[x_s] * modes) @ self.right)

    def column(self, x_t: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        if not self.spectral:
            return super().column(x_t, s, t)
        modes = self._ratio(s, t).double()[..., None] ** self.powers
        return _floor((self.right.T[x_t] * modes) @ self.left.T)

    def unpush(self, ratios: Tensor, s: Tensor | None, t: Tensor) -> Tensor:
        if not self.spectral:
            return super().unpush(ratios, s, t)
        modes = self._ratio(s, t).double()[..., None] ** self.powers
        inverse = torch.where(modes > FORGOTTEN, 1 / modes, torch.zeros_like(modes))
        return ((ratios.double() @ self.left * inverse) @ self.right).to(ratios.dtype)

    def rates_into(self, x_t: Tensor, t: Tensor) -> Tensor:
        column = self.generator.T[x_t].scatter(-1, x_t[..., None], 0.0)
        return self.schedule.rate(t)[..., None] * column


def mutual_information_schedule(chain: Markov, unigram: Tensor, steps: int = 256, least: float = 1e-5) -> Table:
    """Return D3PM's schedule, under which mutual information decreases linearly: I(x_0; x_t) = (1 − t)·H(x_0).

    The information ends at `least` times the entropy, because σ̄ would be infinite at zero. For masked noise this is `Linear`.
    """
    p = torch.as_tensor(unigram, dtype=torch.float64)
    entropy = -torch.xlogy(p, p).sum()
    low, high = torch.zeros(steps + 1, dtype=torch.float64), torch.full((steps + 1,), 64.0, dtype=torch.float64)
    wanted = (1 - torch.linspace(0, 1, steps + 1, dtype=torch.float64)).clamp_min(least) * entropy
    for _ in range(50):  # bisection: the information falls as the noise grows
        middle = (low + high) / 2
        more = chain.mutual_information(p, middle) > wanted
        low, high = torch.where(more, middle, low), torch.where(more, high, middle)
    sigmas = (low + high) / 2
    sigmas[0] = 0
    return Table(sigmas)


def _generator(rates: Tensor) -> Tensor:
    """Return a generator with spectral gap 1 from symmetric rates, ignoring their diagonal: [K, K] → [K, K]."""
    rates = rates - torch.diag(rates.diag())
    q = rates - torch.diag(rates.sum(-1))
    if len(q) < 2:
        raise ValueError("a generator needs at least two tokens")
    gap = -float(torch.linalg.eigvalsh(q)[-2])
    if gap < 1e-9 * float(rates.sum(-1).max()):
        raise ValueError("the tokens fall into separate groups that never mix: use more neighbours or a wider band")
    return q / gap


def _stationary(q: Tensor, scale: float) -> Tensor:
    """Return π with πQ = 0 and Σπ = 1, or raise ValueError if it is not unique: [K]."""
    if len(q) > 1 and float(torch.linalg.svdvals(q)[-2]) < 1e-12 * scale:
        raise ValueError("a generator must have one stationary distribution: its tokens fall into groups that never mix")
    system = torch.cat([q.T / scale, torch.ones(1, len(q), dtype=q.dtype)])
    target = torch.zeros(len(q) + 1, 1, dtype=q.dtype)
    target[-1] = 1
    pi = torch.linalg.lstsq(system, target).solution[:, 0].clamp_min(0)
    return torch.where(pi < 1e-12, torch.zeros_like(pi), pi) / pi.sum()


def _floor(probs: Tensor, scale: Tensor | float = 1.0) -> Tensor:
    return torch.where(probs > FLOOR * scale, probs, torch.zeros_like(probs))


class MaskedMarkov(Process):
    """Masking with one schedule and a `Markov` chain between tokens with another, for example Markov.nearest(…).

    The generator is the sum of the chain's generator on the K tokens and of masking at rate 1. The two commute. With
    α = α_{t|s} of the masks and the chain's transition T, q(x_t | x_s) is α·T(s→t) among tokens and 1 − α into the mask, index
    K, which is absorbing. Every position contributes to the loss, because an unmasked token may have moved.
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

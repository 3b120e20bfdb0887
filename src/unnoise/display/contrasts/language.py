"""A language that can be listed: all K^L texts with their probabilities, and the exact prediction of any process."""

import itertools

import torch
from torch import Tensor

from unnoise.prediction import MeanPrediction
from unnoise.process import Process

SHARPNESS = 1.5  # standard deviation of the texts' log-probabilities


def all_texts(states: int, length: int) -> Tensor:
    """Return every sequence: [states^length, length] long."""
    return torch.tensor(list(itertools.product(range(states), repeat=length)))


class Language:
    """A random distribution p: [N] over the N = K^L texts x: [N, L]."""

    def __init__(self, vocab: int, length: int, seed: int):
        generator = torch.Generator().manual_seed(seed)
        self.vocab, self.length = vocab, length
        self.x = all_texts(vocab, length)
        weights = SHARPNESS * torch.randn(len(self.x), generator=generator, dtype=torch.float64)
        self.p = torch.softmax(weights, 0)

    @property
    def entropy(self) -> float:
        """H(p) in nats."""
        return float(-(self.p * self.p.log()).sum())

    def likelihoods(self, process: Process, x_t: Tensor, t: Tensor) -> Tensor:
        """Return q(x_t^i | x_0^i) for every text x_0: [B, L], [B] → [B, N, L]."""
        at = t.double()[:, None].expand(x_t.shape)
        columns = process.column(x_t, None, at)[..., : self.vocab]  # [B, L, K]
        return columns.transpose(1, 2)[:, self.x, torch.arange(self.length)]

    def mean(self, process: Process, x_t: Tensor, t: Tensor, own: bool = True) -> Tensor:
        """Return p(x_0^i = k | x_t), without `own` p(x_0^i = k | x_t^{≠i}): [B, L], [B] → [B, L, K]."""
        each = self.likelihoods(process, x_t, t)
        found = []
        for i in range(self.length):
            used = [j for j in range(self.length) if own or j != i]
            joint = each[:, :, used].prod(-1) * self.p
            weight = joint.new_zeros(len(joint), self.vocab).index_add(1, self.x[:, i], joint)
            total = weight.sum(-1, keepdim=True)
            found.append(torch.where(total > 0, weight / total, 1 / self.vocab))
        return torch.stack(found, 1)


class ExactMean:
    """The denoiser μ = p(x_0^i | x_t) of a language, or p(x_0^i | x_t^{≠i}) where a plug-in process reads it.

    own: whether position i's token is used; by default as the process's `reverse` needs it.
    error: standard deviation of logits that are added to log μ, fixed for each noised text, so that the denoiser is wrong.
    """

    def __init__(self, language: Language, process: Process, *, own: bool | None = None, error: float = 0.0, seed: int = 0):
        self.language, self.process = language, process
        self.own = process.reverse == "marginal" if own is None else own
        shape = (process.states**language.length, language.length, language.vocab)
        self.error = error * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    def __call__(self, x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        place = self.process.states ** torch.arange(self.language.length)
        mean = self.language.mean(self.process, x_t, t, self.own).clamp_min(1e-300)
        log_mu = torch.log_softmax(mean.log() + self.error[(x_t * place).sum(-1)], -1)
        return MeanPrediction(log_mu if where is None else log_mu[where])

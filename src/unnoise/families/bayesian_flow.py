"""Bayesian flow networks for discrete data (arXiv:2308.07037), continuous time: noise on beliefs instead of tokens.

The state θ: [B, L, K] is a belief about each token, θ_u = softmax(y_u), y_u ~ N(β(u)(K e_{x_0} − 1), β(u)K·I), β(u) = β(1)u².
The clock u = 1 − t runs from the uniform belief to data.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from unnoise.denoiser import Denoiser, SamplingDenoiser
from unnoise.objective.objective_base import Objective
from unnoise.objective.times import stratified
from unnoise.prediction import MeanPrediction, Prediction
from unnoise.process.process_base import gather
from unnoise.process.state import ProcessBase
from unnoise.rng import Generator, draw, normal, uniform
from unnoise.sampler.sampler_base import Frame, SteppedSampler


class BayesianFlow(ProcessBase):
    """Beliefs over K tokens, with accuracy β(u) = β(1)·u²."""

    holds_tokens = False

    def __init__(self, vocab: int, accuracy: float = 3.0):
        super().__init__(vocab)
        if not accuracy > 0:
            raise ValueError(f"BayesianFlow needs an accuracy β(1) > 0, found {accuracy}")
        self.accuracy = accuracy

    @property
    def inputs(self) -> int:
        return self.vocab

    def accuracies(self, messages: int) -> Tensor:
        """Return α_i = β(i/n) − β((i−1)/n) = β(1)(2i − 1)/n² of n messages whose total accuracy is β(1): [n]."""
        beta = self.accuracy * torch.linspace(0, 1, messages + 1, dtype=torch.float64).square()
        return beta.diff()

    def believe(self, x: Tensor, u: Tensor, generator: Generator = None) -> Tensor:
        """Sample θ_u given the sequence: x [B, L], u [B] → [B, L, K]."""
        beta = (self.accuracy * u.square())[:, None, None].to(torch.get_default_dtype())
        target = self.vocab * one_hot(x, self.vocab) - 1
        noise = normal(target.shape, x.device, generator, torch.get_default_dtype())
        return torch.softmax(beta * target + (beta * self.vocab).sqrt() * noise, -1)

    def log_likelihood(self, state: Tensor, t: Tensor) -> Tensor:
        """Return log θ + const, as the belief θ is the likelihood of the messages; state: K·θ [B, L, K] → [B, L, K]."""
        return state.clamp_min(1e-30).log()

    def update(self, belief: Tensor, x: Tensor, alpha: Tensor, generator: Generator = None) -> Tensor:
        """Apply Bayes' rule for a message of accuracy α about the tokens x: θ ∝ θ·e^y, y ~ N(α(K e_x − 1), αK·I)."""
        target = self.vocab * one_hot(x, self.vocab) - 1
        noise = normal(target.shape, x.device, generator, belief.dtype)
        return torch.softmax(belief.clamp_min(1e-30).log() + alpha * target + (alpha * self.vocab).sqrt() * noise, -1)


def output(denoiser: Denoiser, process: BayesianFlow, belief: Tensor, u: Tensor) -> Tensor:
    """Return log p_O(x_0 | θ, u) of a denoiser, which is called with t = 1 − u: [B, L, K]."""
    prediction = denoiser(process.vocab * belief, (1 - u).to(torch.get_default_dtype()))
    if not isinstance(prediction, MeanPrediction) or prediction.log_probs.shape != belief.shape:
        raise ValueError(f"a Bayesian-flow denoiser must return a MeanPrediction of shape {list(belief.shape)}")
    return prediction.log_probs


class FlowElbo(Objective):
    """K β(1) ∫ u·E‖e_{x_0} − ê(θ_u, u)‖² du + E −log p_O(x_0 | θ_1), in nats per sequence: [B].

    Without the last term it would not be a bound. In training it is computed in a quarter of the batches and weighted back.
    """

    SHARE = 0.25  # fraction of the training batches

    def __init__(self, process: BayesianFlow):
        super().__init__()
        if not isinstance(process, BayesianFlow):
            raise ValueError(f"FlowElbo needs a BayesianFlow process, found {type(process).__name__}")
        self.process = process

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        self.process.check_tokens(x)
        return self.drawn(denoiser, x, stratified(len(x), x.device, generator), generator)

    def drawn(self, denoiser: Denoiser, x: Tensor, v: Tensor, generator: Generator = None) -> Tensor:
        nats = self.flow(denoiser, x, self.process.believe(x, v, generator), v)
        share = self.SHARE if torch.is_grad_enabled() else 1.0
        if float(uniform((), x.device, generator)) < share:
            end = torch.ones_like(v)
            nats = nats + self.reconstruction(denoiser, x, self.process.believe(x, end, generator), end) / share
        return nats

    def flow(self, denoiser: Denoiser, x: Tensor, belief: Tensor, u: Tensor) -> Tensor:
        """Compute K β(1) u ‖e_{x_0} − ê‖² summed over positions: [B]."""
        p = output(denoiser, self.process, belief, u).exp()
        # ‖e_x − p‖² = 1 − 2 p_x + Σ p²
        error = (1 - 2 * gather(p, x) + p.square().sum(-1)).sum(-1)
        return (self.process.vocab * self.process.accuracy * u).to(error.dtype) * error

    def reconstruction(self, denoiser: Denoiser, x: Tensor, belief: Tensor, u: Tensor) -> Tensor:
        """Compute Σ −log p_O(x_0 | θ_1): [B]."""
        return -gather(output(denoiser, self.process, belief, u), x).sum(-1)


class FlowCrossEntropy(Objective):
    """Σ_positions −log p_O(x_0 | θ_u, u) at a uniform u: [B]. Not a bound, but it trains faster."""

    def __init__(self, process: BayesianFlow):
        super().__init__()
        self.process = process

    def forward(self, denoiser: Denoiser, x: Tensor, generator: Generator = None) -> Tensor:
        self.process.check_tokens(x)
        u = stratified(len(x), x.device, generator)
        return -gather(output(denoiser, self.process, self.process.believe(x, u, generator), u), x).sum(-1)


@dataclass(frozen=True)
class FlowSampler(SteppedSampler):
    """n = steps − 1 messages about tokens sampled from the network's output (`BayesianFlow.accuracies`), then a last sample.

    Keeps the model's distribution with n messages. Given positions receive messages about their token, which is a heuristic.
    """

    requires: ClassVar[str] = "a BayesianFlow process"

    @property
    def keeps_distribution(self) -> bool:
        return True

    def serves(self, process: ProcessBase, prediction: type[Prediction] = MeanPrediction) -> bool:
        return isinstance(process, BayesianFlow)

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        process = denoiser.state_space
        assert isinstance(process, BayesianFlow)
        belief = torch.full((*x.shape, process.vocab), 1 / process.vocab, device=x.device)
        alpha = process.accuracies(self.steps - 1).to(x.device, belief.dtype)
        for i, at in enumerate(torch.linspace(0, 1, self.steps, dtype=torch.float64).tolist()):
            u = torch.full((len(x),), at, device=x.device, dtype=torch.float64)
            log_p = MeanPrediction(output(denoiser.denoiser, process, belief, u)).shaped(self.temperature, self.top_p).log_probs
            denoiser.nfe += len(x)
            token = torch.where(free, draw(log_p.double().exp(), generator), x)
            last = i == self.steps - 1
            best = token if last else torch.where(free, log_p.argmax(-1), x)
            yield Frame(0.0 if last else 1 - at, best, gather(log_p, best).exp().float())
            if not last:
                belief = process.update(belief, token, alpha[i], generator)

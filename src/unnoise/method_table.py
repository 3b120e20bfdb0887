"""The method table: a name → how process, prediction, objective and sampler are put together. One entry a paper."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unnoise.any_order import AnyOrder
from unnoise.autoregressive import Autoregressive, LeftToRight
from unnoise.bayesian_flow import BayesianFlow, FlowElbo, FlowSampler
from unnoise.embedding_diffusion import Ddim, GaussianElbo, GaussianSampler
from unnoise.insertion import ConfidentInsertion, InsertionElbo, InsertionSampler
from unnoise.objective import ConcreteScore, CrossEntropy, Elbo, Hybrid, LeaveOneOut, Objective
from unnoise.process import Canvas, Masked, Process, Uniform
from unnoise.process.gaussian import Gaussian
from unnoise.process.insertion import Insertion
from unnoise.reading import CausalDenoiser, GapDenoiser, MeanDenoiser, NetworkDenoiser, ScoreDenoiser
from unnoise.sampler import (
    Ancestral,
    Confidence,
    EntropyBounded,
    EulerLeaping,
    FirstHitting,
    LeastEntropy,
    Margin,
    Metropolis,
    PredictorCorrector,
    Remasking,
    Sampler,
    TweedieLeaping,
)
from unnoise.schedule import Cosine, CosineTable, Linear, LogLinear, PerToken

STEPS = 1000  # T of the discrete-time papers
GENMD4_START = 1e-3  # GenMD4 integrates from here and reconstructs below


@dataclass(frozen=True)
class Method:
    """A paper's choice of parts.

    process(vocab) makes the noise, denoiser(network, process) reads the network's output, objective(process) is what the
    paper trains, bound(process) the valid bound that is reported (−log p itself if `exact`), sampler(steps) the paper's
    sampler. time_free: the network does without t. quick: an objective that trains faster; the bound then only evaluates.
    """

    name: str
    title: str
    paper: str
    process: Callable[[int], Canvas]
    denoiser: type[NetworkDenoiser]
    objective: Callable[[Any], Objective]
    bound: Callable[[Any], Objective]
    sampler: Callable[[int], Sampler]
    time_free: bool = False
    exact: bool = False
    quick: Callable[[Any], Objective] | None = None


def _discrete(process: Process) -> Elbo:
    return Elbo(process, steps=STEPS)


def _hybrid(process: Process) -> Hybrid:
    return Hybrid(process, steps=STEPS)


def _learned(process: Process) -> LeaveOneOut:
    return LeaveOneOut(Elbo(process, start=GENMD4_START, network_free=True))


def _from_start(process: Process) -> Elbo:
    return Elbo(process, start=GENMD4_START)


def _quick(process: Process) -> CrossEntropy:
    return CrossEntropy(process, easy=0.3)


def _cosine_ancestral(steps: int) -> Ancestral:
    return Ancestral(steps, grid="cosine")


_TABLE = {
    method.name: method
    for method in (
        Method(
            "multinomial",
            "Multinomial Diffusion: uniform noise in T steps, the mean plugged into the posterior",
            "Hoogeboom et al. 2021, arXiv:2102.05379",
            lambda vocab: Uniform(vocab, CosineTable(STEPS), reverse="plug-in"),
            MeanDenoiser,
            _discrete,
            _discrete,
            Ancestral,
        ),
        Method(
            "d3pm-uniform",
            "D3PM with uniform noise: T steps, marginal reverse, hybrid loss",
            "Austin et al. 2021, arXiv:2107.03006",
            lambda vocab: Uniform(vocab, CosineTable(STEPS)),
            MeanDenoiser,
            _hybrid,
            _discrete,
            Ancestral,
        ),
        Method(
            "d3pm-absorb",
            "D3PM with absorbing noise: T steps, hybrid loss",
            "Austin et al. 2021, arXiv:2107.03006",
            lambda vocab: Masked(vocab, Linear()),
            MeanDenoiser,
            _hybrid,
            _discrete,
            Ancestral,
        ),
        Method(
            "udlm",
            "UDLM: uniform noise in continuous time, the mean plugged in",
            "Schiff et al. 2024, arXiv:2412.10193",
            lambda vocab: Uniform(vocab, LogLinear(1e-3), reverse="plug-in"),
            MeanDenoiser,
            Elbo,
            Elbo,
            Ancestral,
        ),
        Method(
            "mdlm",
            "MDLM: masked noise in continuous time, no time conditioning",
            "Sahoo et al. 2024, arXiv:2406.07524",
            lambda vocab: Masked(vocab, LogLinear(1e-3)),
            MeanDenoiser,
            Elbo,
            Elbo,
            Ancestral,
            time_free=True,
            quick=_quick,
        ),
        Method(
            "md4",
            "MD4: masked noise in continuous time, cosine schedule and cosine sampling grid",
            "Shi et al. 2024, arXiv:2406.04329",
            lambda vocab: Masked(vocab, Cosine()),
            MeanDenoiser,
            Elbo,
            Elbo,
            _cosine_ancestral,
            quick=_quick,
        ),
        Method(
            "genmd4",
            "GenMD4: masked noise with a learned schedule for each token",
            "Shi et al. 2024, arXiv:2406.04329",
            lambda vocab: Masked(vocab, PerToken(vocab)),
            MeanDenoiser,
            _learned,
            _from_start,
            _cosine_ancestral,
        ),
        Method(
            "sedd-absorb",
            "SEDD with absorbing noise: score entropy",
            "Lou et al. 2023, arXiv:2310.16834",
            lambda vocab: Masked(vocab, LogLinear(1e-3)),
            ScoreDenoiser,
            Elbo,
            Elbo,
            TweedieLeaping,
        ),
        Method(
            "sedd-uniform",
            "SEDD with uniform noise: score entropy",
            "Lou et al. 2023, arXiv:2310.16834",
            lambda vocab: Uniform(vocab, LogLinear(1e-3)),
            ScoreDenoiser,
            Elbo,
            Elbo,
            TweedieLeaping,
        ),
        Method(
            "csm",
            "Concrete score matching: squared loss on the ratios under uniform noise",
            "Meng et al. 2022, arXiv:2211.00802",
            lambda vocab: Uniform(vocab, LogLinear(1e-3)),
            ScoreDenoiser,
            ConcreteScore,
            Elbo,
            TweedieLeaping,
        ),
        Method(
            "flexmdm",
            "Flex-MDM: tokens are inserted and unmasked, so that the model chooses the length",
            "Kim et al. 2025, arXiv:2509.01025",
            Insertion,
            GapDenoiser,
            InsertionElbo,
            InsertionElbo,
            InsertionSampler,
        ),
        Method(
            "gaussian",
            "Gaussian diffusion of learned embeddings, with its likelihood bound",
            "Gulrajani and Hashimoto 2023 (Plaid), arXiv:2305.18619; Ho et al. 2020, arXiv:2006.11239",
            Gaussian,
            MeanDenoiser,
            lambda process: GaussianElbo(process, network_free=True),
            GaussianElbo,
            GaussianSampler,
        ),
        Method(
            "bfn",
            "Bayesian flow network: noise on beliefs about tokens",
            "Graves et al. 2023, arXiv:2308.07037",
            BayesianFlow,
            MeanDenoiser,
            FlowElbo,
            FlowElbo,
            FlowSampler,
        ),
        Method(
            "ardm",
            "ARDM: any-order autoregressive, one token at a time in random order",
            "Hoogeboom et al. 2021, arXiv:2110.02037",
            lambda vocab: Masked(vocab, Linear()),
            MeanDenoiser,
            AnyOrder,
            AnyOrder,
            lambda steps: FirstHitting(),
            time_free=True,
            quick=_quick,
        ),
        Method(
            "ar",
            "Autoregressive baseline: next-token likelihood, exact, left to right",
            "Radford et al. 2019; as a baseline in arXiv:2107.03006",
            Canvas,
            CausalDenoiser,
            Autoregressive,
            Autoregressive,
            lambda steps: LeftToRight(),
            time_free=True,
            exact=True,
        ),
    )
}

SAMPLERS: dict[str, type[Sampler]] = {
    "ancestral": Ancestral,
    "first-hitting": FirstHitting,
    "confidence": Confidence,
    "margin": Margin,
    "entropy": LeastEntropy,
    "entropy-bounded": EntropyBounded,
    "remasking": Remasking,
    "predictor-corrector": PredictorCorrector,
    "tweedie": TweedieLeaping,
    "euler": EulerLeaping,
    "metropolis": Metropolis,
    "left-to-right": LeftToRight,
    "gaussian": GaussianSampler,
    "ddim": Ddim,
    "flow": FlowSampler,
    "insertion": InsertionSampler,
    "insertion-confidence": ConfidentInsertion,
}


def named_sampler(name: str, steps: int, temperature: float = 1.0, top_p: float = 1.0) -> Sampler:
    """A sampler by the name that a person types, or ValueError."""
    if name not in SAMPLERS:
        raise ValueError(f"unknown sampler {name!r}: use one of {', '.join(SAMPLERS)}")
    return SAMPLERS[name].make(steps, temperature, top_p)


def methods() -> list[str]:
    """The names of all methods."""
    return list(_TABLE)


def method(name: str) -> Method:
    """The method of this name, or ValueError."""
    if name not in _TABLE:
        raise ValueError(f"unknown method {name!r}: use one of {', '.join(_TABLE)}")
    return _TABLE[name]

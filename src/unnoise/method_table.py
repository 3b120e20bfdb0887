"""The method table: a name → how process, parameterization, objective and sampler are put together. One entry a paper."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from unnoise.families.any_order import AnyOrder
from unnoise.families.autoregressive import Autoregressive, LeftToRight, NextTokenParameterization
from unnoise.families.bayesian_flow import BayesianFlow, FlowElbo, FlowSampler
from unnoise.families.gaussian import Gaussian, GaussianElbo, GaussianSampler
from unnoise.families.insertion import Insertion, InsertionElbo, InsertionParameterization, InsertionSampler
from unnoise.network.parameterization import MeanParameterization, Parameterization, ScoreParameterization
from unnoise.objective import ConcreteScore, CrossEntropy, Elbo, Hybrid, LeaveOneOut, Objective
from unnoise.process import Masked, Process, StateSpace, Uniform
from unnoise.registry import find, register_builtin, registered
from unnoise.sampler import Ancestral, FirstHitting, Sampler, TweedieLeaping
from unnoise.schedule import Cosine, CosineTable, Linear, LogLinear, PerToken

STEPS = 1000  # T of the discrete-time papers
GENMD4_START = 1e-3  # GenMD4 integrates from here and reconstructs below
P = TypeVar("P", bound=StateSpace)


@dataclass(frozen=True)
class Method(Generic[P]):
    """A paper's choice of parts.

    process: vocab → the noise.
    parameterization: how the network's output is read.
    objective: process → what the paper trains.
    bound: process → the valid bound that is reported (−log p itself if `exact`).
    sampler: the paper's sampler.
    time_free: whether the network does without t.
    exact: whether `bound` is −log p itself.
    fast_objective: process → an objective that trains faster, where there is one; the bound then only evaluates.
    """

    name: str
    title: str
    paper: str
    process: Callable[[int], P]
    parameterization: type[Parameterization]
    objective: Callable[[P], Objective]
    bound: Callable[[P], Objective]
    sampler: Sampler
    time_free: bool = False
    exact: bool = False
    fast_objective: Callable[[P], Objective] | None = None


def _discrete(process: Process) -> Elbo:
    return Elbo(process, steps=STEPS)


def _hybrid(process: Process) -> Hybrid:
    return Hybrid(process, steps=STEPS)


def _learned(process: Process) -> LeaveOneOut:
    return LeaveOneOut(Elbo(process, start=GENMD4_START, network_free=True))


def _from_start(process: Process) -> Elbo:
    return Elbo(process, start=GENMD4_START)


def _fast(process: Process) -> CrossEntropy:
    return CrossEntropy(process, initial_max_t=0.3)


METHODS: tuple[Method, ...] = (
    Method(
        "multinomial",
        "Multinomial Diffusion: uniform noise in T steps, the mean plugged into the posterior",
        "Hoogeboom et al. 2021, arXiv:2102.05379",
        lambda vocab: Uniform(vocab, CosineTable(STEPS), reverse="plug-in"),
        MeanParameterization,
        _discrete,
        _discrete,
        Ancestral(),
    ),
    Method(
        "d3pm-uniform",
        "D3PM with uniform noise: T steps, marginal reverse, hybrid loss",
        "Austin et al. 2021, arXiv:2107.03006",
        lambda vocab: Uniform(vocab, CosineTable(STEPS)),
        MeanParameterization,
        _hybrid,
        _discrete,
        Ancestral(),
    ),
    Method(
        "d3pm-absorb",
        "D3PM with absorbing noise: T steps, hybrid loss",
        "Austin et al. 2021, arXiv:2107.03006",
        lambda vocab: Masked(vocab, Linear()),
        MeanParameterization,
        _hybrid,
        _discrete,
        Ancestral(),
    ),
    Method(
        "udlm",
        "UDLM: uniform noise in continuous time, the mean plugged in",
        "Schiff et al. 2024, arXiv:2412.10193",
        lambda vocab: Uniform(vocab, LogLinear(1e-3), reverse="plug-in"),
        MeanParameterization,
        Elbo,
        Elbo,
        Ancestral(),
    ),
    Method(
        "mdlm",
        "MDLM: masked noise in continuous time, no time conditioning",
        "Sahoo et al. 2024, arXiv:2406.07524",
        lambda vocab: Masked(vocab, LogLinear(1e-3)),
        MeanParameterization,
        Elbo,
        Elbo,
        Ancestral(),
        time_free=True,
        fast_objective=_fast,
    ),
    Method(
        "md4",
        "MD4: masked noise in continuous time, cosine schedule and cosine sampling grid",
        "Shi et al. 2024, arXiv:2406.04329",
        lambda vocab: Masked(vocab, Cosine()),
        MeanParameterization,
        Elbo,
        Elbo,
        Ancestral(grid="cosine"),
        fast_objective=_fast,
    ),
    Method(
        "genmd4",
        "GenMD4: masked noise with a learned schedule for each token",
        "Shi et al. 2024, arXiv:2406.04329",
        lambda vocab: Masked(vocab, PerToken(vocab)),
        MeanParameterization,
        _learned,
        _from_start,
        Ancestral(grid="cosine"),
    ),
    Method(
        "sedd-absorb",
        "SEDD with absorbing noise: score entropy",
        "Lou et al. 2023, arXiv:2310.16834",
        lambda vocab: Masked(vocab, LogLinear(1e-3)),
        ScoreParameterization,
        Elbo,
        Elbo,
        TweedieLeaping(),
    ),
    Method(
        "sedd-uniform",
        "SEDD with uniform noise: score entropy",
        "Lou et al. 2023, arXiv:2310.16834",
        lambda vocab: Uniform(vocab, LogLinear(1e-3)),
        ScoreParameterization,
        Elbo,
        Elbo,
        TweedieLeaping(),
    ),
    Method(
        "csm",
        "Concrete score matching: squared loss on the ratios under uniform noise",
        "Meng et al. 2022, arXiv:2211.00802",
        lambda vocab: Uniform(vocab, LogLinear(1e-3)),
        ScoreParameterization,
        ConcreteScore,
        Elbo,
        TweedieLeaping(),
    ),
    Method(
        "flexmdm",
        "Flex-MDM: tokens are inserted and unmasked, so that the model chooses the length",
        "Kim et al. 2025, arXiv:2509.01025",
        Insertion,
        InsertionParameterization,
        InsertionElbo,
        InsertionElbo,
        InsertionSampler(),
    ),
    Method(
        "gaussian",
        "Gaussian diffusion of learned embeddings, with its likelihood bound",
        "Gulrajani and Hashimoto 2023 (Plaid), arXiv:2305.18619; Ho et al. 2020, arXiv:2006.11239",
        Gaussian,
        MeanParameterization,
        lambda process: GaussianElbo(process, network_free=True),
        GaussianElbo,
        GaussianSampler(),
    ),
    Method(
        "bfn",
        "Bayesian flow network: noise on beliefs about tokens",
        "Graves et al. 2023, arXiv:2308.07037",
        BayesianFlow,
        MeanParameterization,
        FlowElbo,
        FlowElbo,
        FlowSampler(),
    ),
    Method(
        "ardm",
        "ARDM: any-order autoregressive, one token at a time in random order",
        "Hoogeboom et al. 2021, arXiv:2110.02037",
        lambda vocab: Masked(vocab, Linear()),
        MeanParameterization,
        AnyOrder,
        AnyOrder,
        FirstHitting(),
        time_free=True,
        fast_objective=_fast,
    ),
    Method(
        "ar",
        "Autoregressive baseline: next-token likelihood, exact, left to right",
        "Radford et al. 2019; as a baseline in arXiv:2107.03006",
        StateSpace,
        NextTokenParameterization,
        Autoregressive,
        Autoregressive,
        LeftToRight(),
        time_free=True,
        exact=True,
    ),
)

register_builtin("method", {entry.name: entry for entry in METHODS})


def methods() -> list[str]:
    """The names of all methods."""
    return list(registered("method"))


def method(name: str) -> Method:
    """The method of this name, or ValueError."""
    found = find("method", name)
    made = found if isinstance(found, Method) else found()
    if not isinstance(made, Method):
        raise ValueError(f"the registered method {name!r} is no unnoise.Method, but {type(made).__name__}")
    return replace(made, name=name)

"""The method table: a name → how process, parameterization, objective and sampler are put together. One entry a paper.

An entry is a function; its arguments are the method's options, set in its name: "md4:offset=1e-4".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from unnoise.families.any_order import AnyOrder
from unnoise.families.autoregressive import Autoregressive, LeftToRight, NextTokenParameterization
from unnoise.families.bayesian_flow import BayesianFlow, FlowCrossEntropy, FlowElbo, FlowSampler
from unnoise.families.block import BlockCrossEntropy, BlockElbo, BlockParameterization, Blocks, BlockSampler
from unnoise.families.ddpm import Ddpm, DdpmElbo, DdpmParameterization, DdpmSampler, DdpmSimple
from unnoise.families.ddpm.betas import SCHEDULES
from unnoise.families.ddpm.process import Embed, Target, Variance
from unnoise.families.gaussian import Gaussian, GaussianCrossEntropy, GaussianElbo, GaussianSampler
from unnoise.families.insertion import (
    EndedInsertionParameterization,
    Insertion,
    InsertionElbo,
    InsertionParameterization,
    InsertionSampler,
)
from unnoise.keywords import accepted_arguments, check_settings, parse_settings
from unnoise.network.parameterization import (
    LikelihoodParameterization,
    MeanParameterization,
    Parameterization,
    PlainScoreParameterization,
    RatioParameterization,
    ScoreParameterization,
)
from unnoise.objective import ConcreteScore, CrossEntropy, Elbo, Hybrid, LeaveOneOut, Objective
from unnoise.objective.times import LogUniformTimes, LossAwareTimes, PowerTimes, SineTimes
from unnoise.process import HybridNoise, Markov, Masked, Neighbourhood, Process, StateSpace, Uniform
from unnoise.process.neighbourhood import SHAPES
from unnoise.registry import find, register_builtin, registered
from unnoise.sampler import Ancestral, EulerLeaping, FirstHitting, Sampler, TweedieLeaping
from unnoise.schedule import Cosine, CosineTable, Geometric, Linear, LogLinear, Offset, PerToken, Polynomial, Schedule

STEPS = 1000  # T of the discrete-time papers
HYBRID = 0.01  # λ of D3PM for text
EPS = 1e-3  # α(1) of SEDD, MDLM and UDLM
SIGMA_MIN, SIGMA_MAX = 1e-4, 20.0  # of SEDD's geometric noise
GENMD4_START = 1e-3  # GenMD4 integrates from here and reconstructs below
EVALUATED = {
    "masked": 1.5,
    "uniform": 2.5,
    "ratio": 4.0,
}  # bounds are evaluated at t = u^power, with the least variance of those tried
GENMD4_LR = 0.03  # of its exponents, which move by about one learning rate in a step
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
    stops_at_end: whether a text stops at its end token; elsewhere whole texts are filled up with it to one length.
    process_lr: learning rate of the process's parameters (a noise schedule, embeddings); None is the network's.
    image_process: the same as `process` for the pixels of images, whose tokens are levels in order; None is `process` itself.
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
    stops_at_end: bool = False
    process_lr: float | None = None
    image_process: Callable[[int], P] | None = None

    def process_for(self, vocab: int, grid: Sequence[int] = ()) -> P:
        """Return the noise for this vocabulary; grid: rows and columns of an image, where a codec has them."""
        return self.image_process(vocab) if grid and self.image_process is not None else self.process(vocab)


def _fast(process: Process) -> CrossEntropy:
    return CrossEntropy(process, initial_max_t=0.3)


# ---- multinomial diffusion and D3PM: T steps -----------------------------------------------------------------------------


def last_mean(last_step: str, steps: int) -> float:
    """Return `Uniform.mean_until` for a last step p(x_0 | x_1): 1/T for the mean itself, 0 for the product q(x_1 | x_0)·μ."""
    if last_step not in ("product", "mean"):
        raise ValueError(f"last_step is product or mean, found {last_step!r}")
    return 1 / steps if last_step == "mean" else 0.0


def multinomial(steps: int = STEPS, importance: bool = False, last_step: str = "product") -> Method:
    """importance: draw t where the loss is large (arXiv:2102.05379, appendix). last_step: p(x_0 | x_1) is the normalised
    product q(x_1 | x_0)·μ, as in the authors' code, or mean, μ itself, as the paper defines it."""
    times, until = LossAwareTimes if importance else PowerTimes, last_mean(last_step, steps)
    return Method(
        "multinomial",
        "Multinomial Diffusion: uniform noise in T steps, the mean plugged into the posterior",
        "Hoogeboom et al. 2021, arXiv:2102.05379",
        lambda vocab: Uniform(vocab, CosineTable(steps), reverse="plug-in", mean_until=until),
        MeanParameterization,
        lambda process: Elbo(process, steps=steps, times=times()),
        lambda process: Elbo(process, steps=steps, times=PowerTimes(EVALUATED["uniform"])),
        Ancestral(),
    )


def d3pm_uniform(steps: int = STEPS, hybrid: float = 0.0, last_step: str = "product") -> Method:
    """hybrid: weight λ of the auxiliary cross-entropy. The paper's runs on text have 0 for this noise: the bound of the
    plugged-in mean has its minimum at p(x_0^i | x_t^{≠i}), the cross-entropy at p(x_0^i | x_t), so the two disagree. last_step:
    p(x_0 | x_1) is the normalised product q(x_1 | x_0)·μ, or mean, μ itself."""
    until = last_mean(last_step, steps)
    return Method(
        "d3pm-uniform",
        "D3PM with uniform noise: T steps, the mean plugged into the posterior",
        "Austin et al. 2021, arXiv:2107.03006",
        lambda vocab: Uniform(vocab, CosineTable(steps), reverse="plug-in", mean_until=until),
        MeanParameterization,
        lambda process: Hybrid(process, steps=steps, weight=hybrid) if hybrid else Elbo(process, steps=steps),
        lambda process: Elbo(process, steps=steps, times=PowerTimes(EVALUATED["uniform"])),
        Ancestral(),
    )


def d3pm_absorb(steps: int = STEPS, hybrid: float = HYBRID) -> Method:
    """hybrid: the weight λ of the cross-entropy. The schedule is linear, which for masks keeps the mutual information with the
    text falling in a straight line (D3PM's mutual-information schedule)."""
    return Method(
        "d3pm-absorb",
        "D3PM with absorbing noise: T steps, hybrid loss",
        "Austin et al. 2021, arXiv:2107.03006",
        lambda vocab: Masked(vocab, Linear()),
        MeanParameterization,
        lambda process: Hybrid(process, steps=steps, weight=hybrid),
        lambda process: Elbo(process, steps=steps, times=PowerTimes(EVALUATED["masked"])),
        Ancestral(),
    )


# ---- continuous time -----------------------------------------------------------------------------------------------------


def udlm(eps: float = EPS) -> Method:
    """eps: the signal α(1) that is left at t = 1. The loss of the paper's own code has 0, and its network reads σ with 1e-3."""
    return Method(
        "udlm",
        "UDLM: uniform noise in continuous time, the mean plugged in",
        "Schiff et al. 2024, arXiv:2412.10193",
        lambda vocab: Uniform(vocab, LogLinear(eps), reverse="plug-in"),
        MeanParameterization,
        Elbo,
        lambda process: Elbo(process, power=EVALUATED["uniform"]),
        Ancestral(),
    )


def mdlm(importance: bool = False, eps: float = EPS, time: bool = False) -> Method:
    """importance: train with log-uniform t (the paper's importance sampling). eps: ε of α = 1 − (1 − ε)t; 0 is the linear
    schedule of LLaDA and Dream. time: the network reads t, as it need not."""
    return Method(
        "mdlm",
        "MDLM: masked noise in continuous time, no time conditioning",
        "Sahoo et al. 2024, arXiv:2406.07524",
        lambda vocab: Masked(vocab, LogLinear(eps) if eps else Linear()),
        MeanParameterization,
        (lambda process: Elbo(process, start=1e-3, network_free=True, times=LogUniformTimes())) if importance else Elbo,
        Elbo,
        Ancestral(),
        time_free=not time,
        fast_objective=_fast,
    )


def md4(offset: float = 0.0, schedule: str = "linear") -> Method:
    """offset: ε of α = (1 − 2ε)α̃ + ε; 1e-4 in the paper's own code. schedule: linear, sampled on the cosine grid of times, as
    in the paper's runs on text8, OpenWebText (small) and CIFAR-10; or cosine (OpenWebText, medium), or poly with an exponent w
    (poly3), 1 − t^w, both sampled on the uniform grid. Linear with the cosine grid and cosine with the uniform grid unmask the
    same number of tokens in each step."""
    known = {"linear": Linear, "cosine": Cosine}
    if str(schedule).startswith("poly"):
        known[schedule] = lambda: Polynomial(_exponent(schedule))
    if schedule not in known:
        raise ValueError(f"the schedule of md4 is linear, cosine or poly with an exponent, found {schedule!r}")
    return Method(
        "md4",
        "MD4: masked noise in continuous time, sampled with few tokens in the first steps",
        "Shi et al. 2024, arXiv:2406.04329",
        lambda vocab: Masked(vocab, Offset(known[schedule](), offset) if offset else known[schedule]()),
        MeanParameterization,
        (lambda process: Elbo(process, network_free=True)) if offset else Elbo,
        Elbo,
        Ancestral(grid="cosine" if schedule == "linear" else "uniform"),
        fast_objective=_fast,
    )


def _exponent(schedule: str) -> float:
    """The number after poly, or ValueError."""
    try:
        return float(schedule.removeprefix("poly"))
    except ValueError as error:
        raise ValueError(f"the schedule poly has an exponent, as poly3, found {schedule!r}") from error


def gidd(p_uniform: float = 0.2) -> Method:
    """p_uniform: p_u, how likely a token is uniform noise at t = ½; 0 is mdlm with the linear schedule."""
    return Method(
        "gidd",
        "GIDD: masks and uniform noise at once in continuous time, the mean plugged in",
        "von Rütte et al. 2025, arXiv:2503.04482",
        lambda vocab: HybridNoise(vocab, p_uniform),
        MeanParameterization,
        lambda process: Elbo(process, times=SineTimes()),
        lambda process: Elbo(process, times=SineTimes()),
        Ancestral(),
    )


def genmd4(power: float = 1.0) -> Method:
    """power: the exponents of the schedule before training."""
    return Method(
        "genmd4",
        "GenMD4: masked noise with a learned schedule for each token",
        "Shi et al. 2024, arXiv:2406.04329",
        lambda vocab: Masked(vocab, PerToken(vocab, power)),
        MeanParameterization,
        lambda process: LeaveOneOut(Elbo(process, start=GENMD4_START, network_free=True)),
        lambda process: Elbo(process, start=GENMD4_START, power=EVALUATED["masked"]),
        Ancestral(grid="cosine"),
        process_lr=GENMD4_LR,
    )


def sedd_absorb(
    schedule: str = "loglinear", sigma_min: float = SIGMA_MIN, sigma_max: float = SIGMA_MAX, scaled: bool = True
) -> Method:
    """schedule: loglinear, or geometric with σ from sigma_min to sigma_max. scaled: the network's output is scaled to the size
    of the ratios at t; without, it is log s itself."""
    return Method(
        "sedd-absorb",
        "SEDD with absorbing noise: score entropy",
        "Lou et al. 2023, arXiv:2310.16834",
        lambda vocab: Masked(vocab, sedd_schedule(schedule, sigma_min, sigma_max)),
        ScoreParameterization if scaled else PlainScoreParameterization,
        Elbo,
        lambda process: Elbo(process, power=EVALUATED["masked"]),
        TweedieLeaping(),
    )


def sedd_uniform(
    schedule: str = "loglinear", sigma_min: float = SIGMA_MIN, sigma_max: float = SIGMA_MAX, scaled: bool = True
) -> Method:
    """schedule: loglinear, or geometric with σ from sigma_min to sigma_max. scaled: the network's output is scaled to the size
    of the ratios at t; without, it is log s itself."""
    return Method(
        "sedd-uniform",
        "SEDD with uniform noise: score entropy",
        "Lou et al. 2023, arXiv:2310.16834",
        lambda vocab: Uniform(vocab, sedd_schedule(schedule, sigma_min, sigma_max)),
        ScoreParameterization if scaled else PlainScoreParameterization,
        Elbo,
        lambda process: Elbo(process, power=EVALUATED["uniform"]),
        TweedieLeaping(),
    )


def sedd_schedule(name: str, sigma_min: float, sigma_max: float) -> Schedule:
    """The noise of SEDD by its name."""
    if name not in ("loglinear", "geometric"):
        raise ValueError(f"the schedule of sedd is loglinear or geometric, found {name!r}")
    return LogLinear(EPS) if name == "loglinear" else Geometric(sigma_min, sigma_max)


def csm(weighted: bool = True, neighbours: str = "complete") -> Method:
    """weighted: multiply the squared loss by (1 − α_t)²; without, as in the paper, small t outweigh all others. neighbours: the
    tokens y whose ratios are learned, and to which the noise jumps: complete (all tokens), line (y = x ± 1, for ordered values
    such as pixel levels) or ring."""
    if neighbours not in SHAPES:
        raise ValueError(f"the neighbours of csm are {', '.join(SHAPES[:-1])} or {SHAPES[-1]}, found {neighbours!r}")

    def process(vocab: int) -> Process:
        if neighbours == "complete" or vocab == 1:
            return Uniform(vocab, LogLinear(EPS))
        return Markov.graph(Neighbourhood.named(neighbours, vocab), LogLinear(EPS))

    return Method(
        "csm",
        "Concrete score matching: squared loss on the ratios, under uniform noise or noise between neighbours",
        "Meng et al. 2022, arXiv:2211.00802",
        process,
        RatioParameterization,
        lambda process: ConcreteScore(process, weighted=weighted),
        lambda process: Elbo(process, power=EVALUATED["ratio"]),
        TweedieLeaping() if neighbours == "complete" else EulerLeaping(),
    )


# ---- systems with a process of their own ---------------------------------------------------------------------------------


def flexmdm(layout: str = "start") -> Method:
    """layout: start, a symbol before the text and gaps after each position; or end, as in the paper's own code, padding after
    the text, gaps before each position, and these as the network says them, not scaled with t."""
    layouts = {"start": InsertionParameterization, "end": EndedInsertionParameterization}
    if layout not in layouts:
        raise ValueError(f"the layout of flexmdm is start or end, found {layout!r}")
    return Method(
        "flexmdm",
        "Flex-MDM: tokens are inserted and unmasked, so that the model chooses the length",
        "Kim et al. 2025, arXiv:2509.01025",
        Insertion,
        layouts[layout],
        InsertionElbo,
        InsertionElbo,
        InsertionSampler(),
    )


def bd3lm(block: int = 4, whole: float = 0.0, first: int = 0, hidden: float = 1.0, span: int = 1) -> Method:
    """block: tokens of a block. whole: the share of batches, of the fast loss, in which texts are read as one block, as mdlm
    reads them, so that the model also fills in what stands before given text. first: the size of the blocks when training with
    the fast loss begins; it is doubled up to `block`. hidden: the largest share of tokens that is hidden in whole texts, and
    span: how many beside each other are hidden together there, at most."""
    return Method(
        "bd3lm",
        "BD3-LM: block diffusion, masked within a block and left to right over blocks",
        "Arriola et al. 2025, arXiv:2503.09573",
        lambda vocab: Blocks(vocab, block, whole > 0),
        BlockParameterization,
        BlockElbo,
        BlockElbo,
        BlockSampler(),
        time_free=True,
        exact=block == 1,
        fast_objective=lambda process: BlockCrossEntropy(process, first or None, whole, hidden, span),
        stops_at_end=True,
    )


def gaussian(width: int = 16, learned: bool = False, self_condition: bool = False, likelihood: bool = True) -> Method:
    """width: of the embeddings. learned: the noise γ(t) is learned, its ends and its shape (Plaid). self_condition: the network
    also reads its last estimate. likelihood: multiply the network's output by q(z_t | x_0) (Plaid's output prior)."""
    return Method(
        "gaussian",
        "Gaussian diffusion of learned embeddings, with its likelihood bound",
        "Gulrajani and Hashimoto 2023 (Plaid), arXiv:2305.18619; Ho et al. 2020, arXiv:2006.11239",
        lambda vocab: Gaussian(vocab, width, learned=learned, self_condition=self_condition),
        LikelihoodParameterization if likelihood else MeanParameterization,
        lambda process: GaussianElbo(process, network_free=True),
        GaussianElbo,
        GaussianSampler(),
        fast_objective=GaussianCrossEntropy,
    )


def ddpm(
    steps: int = STEPS,
    schedule: str = "auto",
    target: str = "eps",
    loss: str = "simple",
    variance: str = "posterior",
    embed: str = "auto",
    width: int = 16,
) -> Method:
    """steps: T. schedule: of β_t, linear (for images by default), cosine, or sqrt (for text by default). target: the network
    predicts eps, x0 or mean (μ̃_t). loss: simple or elbo. variance: σ_t² of the reverse step, posterior (β̃_t) or beta (β_t).
    embed: values (numbers from −1 to 1, for images by default), fixed (random vectors, for text by default) or learned vectors.
    width: of the vectors."""
    known = {"schedule": ("auto", *SCHEDULES), "loss": ("simple", "elbo"), "embed": ("auto", "values", "fixed", "learned")}
    for option, value in (("schedule", schedule), ("loss", loss), ("embed", embed)):
        if value not in known[option]:
            raise ValueError(f"the {option} of ddpm is {', '.join(known[option][:-1])} or {known[option][-1]}, found {value!r}")

    def made(vocab: int, image: bool) -> Ddpm:
        chosen = ("values" if image else "fixed") if embed == "auto" else embed
        betas = SCHEDULES[("linear" if chosen == "values" else "sqrt") if schedule == "auto" else schedule](steps)
        return Ddpm(vocab, betas, cast(Target, target), cast(Variance, variance), cast(Embed, chosen), width)

    made(2, image=False)  # a wrong option is an error at once
    return Method(
        "ddpm",
        "DDPM: Gaussian noise in T steps on the values of pixels, or on embeddings of tokens",
        "Ho et al. 2020, arXiv:2006.11239",
        lambda vocab: made(vocab, image=False),
        DdpmParameterization,
        DdpmSimple if loss == "simple" else lambda process: DdpmElbo(process, clip=False, share=0.25),
        DdpmElbo,
        DdpmSampler(),
        image_process=lambda vocab: made(vocab, image=True),
    )


def bfn(accuracy: float = 0.75, likelihood: bool = True) -> Method:
    """accuracy: β(1); 0.75 for text8 in the paper. likelihood: multiply the network's output by the belief (Bayes' rule);
    without it, as in the paper, the network must learn to."""
    return Method(
        "bfn",
        "Bayesian flow network: noise on beliefs about tokens",
        "Graves et al. 2023, arXiv:2308.07037",
        lambda vocab: BayesianFlow(vocab, accuracy),
        LikelihoodParameterization if likelihood else MeanParameterization,
        FlowElbo,
        FlowElbo,
        FlowSampler(),
        fast_objective=FlowCrossEntropy,
    )


# ---- baselines -----------------------------------------------------------------------------------------------------------


def ardm() -> Method:
    """No options."""
    return Method(
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
    )


def ar() -> Method:
    """No options."""
    return Method(
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
        stops_at_end=True,
    )


METHODS: dict[str, Callable[..., Method]] = {
    "multinomial": multinomial,
    "d3pm-uniform": d3pm_uniform,
    "d3pm-absorb": d3pm_absorb,
    "udlm": udlm,
    "mdlm": mdlm,
    "md4": md4,
    "genmd4": genmd4,
    "gidd": gidd,
    "sedd-absorb": sedd_absorb,
    "sedd-uniform": sedd_uniform,
    "csm": csm,
    "flexmdm": flexmdm,
    "bd3lm": bd3lm,
    "gaussian": gaussian,
    "ddpm": ddpm,
    "bfn": bfn,
    "ardm": ardm,
    "ar": ar,
}

register_builtin("method", METHODS)


def methods() -> list[str]:
    """The names of all methods."""
    return list(registered("method"))


def method(name: str) -> Method:
    """The method of this name, with its options where some are set ("md4:offset=1e-4"), or ValueError."""
    base, _, settings = name.partition(":")
    found = find("method", base)
    chosen = parse_settings(base, settings, "method")
    check_settings(base, chosen, method_options(base), "method")
    try:
        made = found if isinstance(found, Method) else found(**chosen)
    except TypeError as error:
        raise ValueError(f"the method {name} cannot be made: {error}") from error
    if not isinstance(made, Method):
        raise ValueError(f"the registered method {name!r} is no unnoise.Method, but {type(made).__name__}")
    return replace(made, name=name)


def method_options(name: str) -> dict[str, Any]:
    """What can be set of a method, with its defaults."""
    found = find("method", name)
    return {} if isinstance(found, Method) else accepted_arguments(found) or {}

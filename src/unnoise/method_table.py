"""The method table: the process, parameterization, objective and sampler of each paper.

An entry is a function. Its arguments are the options of the method, which are set in its name: "md4:offset=1e-4".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

from unnoise.families.any_order import AnyOrder
from unnoise.families.autoregressive import Autoregressive, LeftToRight, NextTokenParameterization
from unnoise.families.bayesian_flow import BayesianFlow, FlowCrossEntropy, FlowElbo, FlowSampler
from unnoise.families.block import BlockParameterization, Blocks
from unnoise.families.block_objective import BlockCrossEntropy, BlockElbo
from unnoise.families.block_sampler import BlockSampler
from unnoise.families.ddpm import SCHEDULES, Ddpm, Embed, Target, Variance
from unnoise.families.ddpm_objective import DdpmElbo, DdpmParameterization, DdpmSampler, DdpmSimple
from unnoise.families.gaussian import Gaussian, GaussianCrossEntropy, GaussianElbo, GaussianSampler
from unnoise.families.insertion import EndedInsertionParameterization, Insertion, InsertionElbo, InsertionParameterization
from unnoise.families.insertion_sampler import InsertionSampler
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
from unnoise.process import HybridNoise, Markov, Masked, Neighbourhood, Process, ProcessBase, Uniform
from unnoise.process.uniform import SHAPES
from unnoise.registry import accepted_arguments, check_settings, find, parse_settings, register_builtin, registered
from unnoise.sampler import Ancestral, EulerLeaping, FirstHitting, Sampler, TweedieLeaping
from unnoise.schedule import Cosine, CosineTable, Geometric, Linear, LogLinear, Offset, PerToken, Polynomial, Schedule

STEPS = 1000  # T of the discrete-time papers
HYBRID = 0.01  # λ of D3PM on text
EPS = 1e-3  # α(1) of SEDD, MDLM and UDLM
SIGMA_MIN, SIGMA_MAX = 1e-4, 20.0  # of SEDD's geometric noise
GENMD4_START = 1e-3  # lower end of GenMD4's integral
GENMD4_LR = 0.03  # of the exponents of GenMD4's schedule
EVALUATED = {"masked": 1.5, "uniform": 2.5, "ratio": 4.0}  # power of t = u^power that gave bounds the least variance
P = TypeVar("P", bound=ProcessBase)


@dataclass(frozen=True, kw_only=True)
class Method(Generic[P]):
    """The parts that a paper combines.

    title: short description.
    paper: authors, year and arXiv number.
    process: function from the vocabulary size to the forward process.
    parameterization: class that turns the network's output into a prediction.
    objective: function from the process to the paper's training loss.
    bound: function from the process to the bound that is reported, or to −log p itself if `exact`.
    sampler: the paper's sampler.
    time_free: whether the network ignores t.
    exact: whether `bound` is −log p itself.
    fast_objective: function from the process to a loss that trains faster, if there is one; `bound` is then used only for
        evaluation.
    stops_at_end: whether a sequence stops at its EOS token; other methods pad with EOS to a common length.
    process_lr: learning rate of the parameters of the process (noise schedule, embeddings); None for the network's.
    image_process: like `process`, for pixels of images, whose tokens are ordered levels; None for `process` itself.
    name: the name in the table, with options; set by `method`.
    """

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
    name: str = ""

    def process_for(self, vocab: int, grid: Sequence[int] = ()) -> P:
        """Return the process for a vocabulary size; grid: rows and columns of an image, for image codecs."""
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
    """importance: sample t where the loss is large (arXiv:2102.05379, appendix). last_step: "product" defines p(x_0 | x_1) as
    the normalised product q(x_1 | x_0)·μ, as in the authors' code; "mean" defines it as μ, as in the paper."""
    times, until = LossAwareTimes if importance else PowerTimes, last_mean(last_step, steps)
    return Method(
        title="Multinomial Diffusion: uniform noise in T steps, the mean plugged into the posterior",
        paper="Hoogeboom et al. 2021, arXiv:2102.05379",
        process=lambda vocab: Uniform(vocab, CosineTable(steps), reverse="plug-in", mean_until=until),
        parameterization=MeanParameterization,
        objective=lambda process: Elbo(process, steps=steps, times=times()),
        bound=lambda process: Elbo(process, steps=steps, times=PowerTimes(EVALUATED["uniform"])),
        sampler=Ancestral(),
    )


def d3pm_uniform(steps: int = STEPS, hybrid: float = 0.0, last_step: str = "product") -> Method:
    """hybrid: weight λ of the auxiliary cross-entropy, 0 in the paper's runs on text. The bound of the plug-in mean is minimal
    at p(x_0^i | x_t^{≠i}) and the cross-entropy at p(x_0^i | x_t), so the two disagree. last_step: "product" defines
    p(x_0 | x_1) as the normalised product q(x_1 | x_0)·μ; "mean" defines it as μ."""
    until = last_mean(last_step, steps)
    return Method(
        title="D3PM with uniform noise: T steps, the mean plugged into the posterior",
        paper="Austin et al. 2021, arXiv:2107.03006",
        process=lambda vocab: Uniform(vocab, CosineTable(steps), reverse="plug-in", mean_until=until),
        parameterization=MeanParameterization,
        objective=lambda process: Hybrid(process, steps=steps, weight=hybrid) if hybrid else Elbo(process, steps=steps),
        bound=lambda process: Elbo(process, steps=steps, times=PowerTimes(EVALUATED["uniform"])),
        sampler=Ancestral(),
    )


def d3pm_absorb(steps: int = STEPS, hybrid: float = HYBRID) -> Method:
    """hybrid: weight λ of the cross-entropy. The schedule is linear: for masks the mutual information with the data then falls
    linearly (D3PM's mutual-information schedule)."""
    return Method(
        title="D3PM with absorbing noise: T steps, hybrid loss",
        paper="Austin et al. 2021, arXiv:2107.03006",
        process=lambda vocab: Masked(vocab, Linear()),
        parameterization=MeanParameterization,
        objective=lambda process: Hybrid(process, steps=steps, weight=hybrid),
        bound=lambda process: Elbo(process, steps=steps, times=PowerTimes(EVALUATED["masked"])),
        sampler=Ancestral(),
    )


# ---- continuous time -----------------------------------------------------------------------------------------------------


def udlm(eps: float = EPS) -> Method:
    """eps: remaining signal α(1). The loss in the paper's code uses 0, its time conditioning 1e-3."""
    return Method(
        title="UDLM: uniform noise in continuous time, the mean plugged in",
        paper="Schiff et al. 2024, arXiv:2412.10193",
        process=lambda vocab: Uniform(vocab, LogLinear(eps), reverse="plug-in"),
        parameterization=MeanParameterization,
        objective=Elbo,
        bound=lambda process: Elbo(process, power=EVALUATED["uniform"]),
        sampler=Ancestral(),
    )


def mdlm(importance: bool = False, eps: float = EPS, time: bool = False) -> Method:
    """importance: train with log-uniform t (the paper's importance sampling). eps: ε of α = 1 − (1 − ε)t; 0 is the linear
    schedule of LLaDA and Dream. time: condition the network on t, which is optional for masked noise."""
    return Method(
        title="MDLM: masked noise in continuous time, no time conditioning",
        paper="Sahoo et al. 2024, arXiv:2406.07524",
        process=lambda vocab: Masked(vocab, LogLinear(eps) if eps else Linear()),
        parameterization=MeanParameterization,
        objective=(lambda process: Elbo(process, start=1e-3, network_free=True, times=LogUniformTimes()))
        if importance
        else Elbo,
        bound=Elbo,
        sampler=Ancestral(),
        time_free=not time,
        fast_objective=_fast,
    )


def md4(offset: float = 0.0, schedule: str = "linear") -> Method:
    """offset: ε of α = (1 − 2ε)α̃ + ε; 1e-4 in the paper's code. schedule: "linear", sampled on the cosine grid of times (the
    paper's text8, small OpenWebText and CIFAR-10 runs); "cosine" (medium OpenWebText run) or "poly" with an exponent w, such as
    "poly3" for 1 − t^w, both sampled on the uniform grid. Linear with the cosine grid and cosine with the uniform grid unmask
    the same number of tokens in each step."""
    known = {"linear": Linear, "cosine": Cosine}
    if str(schedule).startswith("poly"):
        known[schedule] = lambda: Polynomial(_exponent(schedule))
    if schedule not in known:
        raise ValueError(f"the schedule of md4 is linear, cosine or poly with an exponent, found {schedule!r}")
    return Method(
        title="MD4: masked noise in continuous time, sampled with few tokens in the first steps",
        paper="Shi et al. 2024, arXiv:2406.04329",
        process=lambda vocab: Masked(vocab, Offset(known[schedule](), offset) if offset else known[schedule]()),
        parameterization=MeanParameterization,
        objective=(lambda process: Elbo(process, network_free=True)) if offset else Elbo,
        bound=Elbo,
        sampler=Ancestral(grid="cosine" if schedule == "linear" else "uniform"),
        fast_objective=_fast,
    )


def _exponent(schedule: str) -> float:
    """Return the number after "poly", or raise ValueError."""
    try:
        return float(schedule.removeprefix("poly"))
    except ValueError as error:
        raise ValueError(f"the schedule poly needs an exponent, such as poly3, found {schedule!r}") from error


def gidd(p_uniform: float = 0.2) -> Method:
    """p_uniform: p_u, the probability that a token is uniform noise at t = ½; 0 is mdlm with the linear schedule."""
    return Method(
        title="GIDD: masked and uniform noise combined, in continuous time, plug-in mean",
        paper="von Rütte et al. 2025, arXiv:2503.04482",
        process=lambda vocab: HybridNoise(vocab, p_uniform),
        parameterization=MeanParameterization,
        objective=lambda process: Elbo(process, times=SineTimes()),
        bound=lambda process: Elbo(process, times=SineTimes()),
        sampler=Ancestral(),
    )


def genmd4(power: float = 1.0) -> Method:
    """power: initial exponents of the schedule."""
    return Method(
        title="GenMD4: masked noise with a learned schedule for each token",
        paper="Shi et al. 2024, arXiv:2406.04329",
        process=lambda vocab: Masked(vocab, PerToken(vocab, power)),
        parameterization=MeanParameterization,
        objective=lambda process: LeaveOneOut(Elbo(process, start=GENMD4_START, network_free=True)),
        bound=lambda process: Elbo(process, start=GENMD4_START, power=EVALUATED["masked"]),
        sampler=Ancestral(grid="cosine"),
        process_lr=GENMD4_LR,
    )


def sedd_absorb(
    schedule: str = "loglinear", sigma_min: float = SIGMA_MIN, sigma_max: float = SIGMA_MAX, scaled: bool = True
) -> Method:
    """schedule: loglinear, or geometric with σ from sigma_min to sigma_max. scaled: the network's output is scaled to the size
    of the ratios at t; without, it is log s itself."""
    return Method(
        title="SEDD with absorbing noise: score entropy",
        paper="Lou et al. 2023, arXiv:2310.16834",
        process=lambda vocab: Masked(vocab, sedd_schedule(schedule, sigma_min, sigma_max)),
        parameterization=ScoreParameterization if scaled else PlainScoreParameterization,
        objective=Elbo,
        bound=lambda process: Elbo(process, power=EVALUATED["masked"]),
        sampler=TweedieLeaping(),
    )


def sedd_uniform(
    schedule: str = "loglinear", sigma_min: float = SIGMA_MIN, sigma_max: float = SIGMA_MAX, scaled: bool = True
) -> Method:
    """schedule: loglinear, or geometric with σ from sigma_min to sigma_max. scaled: the network's output is scaled to the size
    of the ratios at t; without, it is log s itself."""
    return Method(
        title="SEDD with uniform noise: score entropy",
        paper="Lou et al. 2023, arXiv:2310.16834",
        process=lambda vocab: Uniform(vocab, sedd_schedule(schedule, sigma_min, sigma_max)),
        parameterization=ScoreParameterization if scaled else PlainScoreParameterization,
        objective=Elbo,
        bound=lambda process: Elbo(process, power=EVALUATED["uniform"]),
        sampler=TweedieLeaping(),
    )


def sedd_schedule(name: str, sigma_min: float, sigma_max: float) -> Schedule:
    """Return a noise schedule of SEDD by name."""
    if name not in ("loglinear", "geometric"):
        raise ValueError(f"the schedule of sedd is loglinear or geometric, found {name!r}")
    return LogLinear(EPS) if name == "loglinear" else Geometric(sigma_min, sigma_max)


def csm(weighted: bool = True, neighbours: str = "complete") -> Method:
    """weighted: multiply the squared loss by (1 − α_t)²; the paper does not, so that small t dominate. neighbours: the
    tokens y whose ratios are learned and to which the noise jumps: complete (all tokens), line (y = x ± 1, for ordered values
    such as pixel levels) or ring."""
    if neighbours not in SHAPES:
        raise ValueError(f"the neighbours of csm are {', '.join(SHAPES[:-1])} or {SHAPES[-1]}, found {neighbours!r}")

    def process(vocab: int) -> Process:
        if neighbours == "complete" or vocab == 1:
            return Uniform(vocab, LogLinear(EPS))
        return Markov.graph(Neighbourhood.named(neighbours, vocab), LogLinear(EPS))

    return Method(
        title="Concrete score matching: squared loss on the ratios, under uniform noise or noise between neighbours",
        paper="Meng et al. 2022, arXiv:2211.00802",
        process=process,
        parameterization=RatioParameterization,
        objective=lambda process: ConcreteScore(process, weighted=weighted),
        bound=lambda process: Elbo(process, power=EVALUATED["ratio"]),
        sampler=TweedieLeaping() if neighbours == "complete" else EulerLeaping(),
    )


# ---- families with other processes ---------------------------------------------------------------------------------------


def flexmdm(layout: str = "start") -> Method:
    """layout: "start" puts a symbol before the sequence and a gap after each position. "end", as in the paper's code, puts
    padding after the sequence and a gap before each position, and does not scale the gap outputs with t."""
    layouts = {"start": InsertionParameterization, "end": EndedInsertionParameterization}
    if layout not in layouts:
        raise ValueError(f"the layout of flexmdm is start or end, found {layout!r}")
    return Method(
        title="Flex-MDM: inserts and unmasks tokens, so the model chooses the length",
        paper="Kim et al. 2025, arXiv:2509.01025",
        process=Insertion,
        parameterization=layouts[layout],
        objective=InsertionElbo,
        bound=InsertionElbo,
        sampler=InsertionSampler(),
    )


def bd3lm(block: int = 4, whole: float = 0.0, first: int = 0, hidden: float = 1.0, span: int = 1) -> Method:
    """block: tokens per block. The other options concern the fast loss. whole: share of batches in which a sequence is one
    block, as in mdlm, so that the model can also infill before given text. first: initial block size, doubled up to `block`
    during training. hidden: largest share of tokens masked in these whole sequences. span: largest number of adjacent tokens
    masked together there."""
    return Method(
        title="BD3-LM: block diffusion, masked within a block and left to right over blocks",
        paper="Arriola et al. 2025, arXiv:2503.09573",
        process=lambda vocab: Blocks(vocab, block, whole > 0),
        parameterization=BlockParameterization,
        objective=BlockElbo,
        bound=BlockElbo,
        sampler=BlockSampler(),
        time_free=True,
        exact=block == 1,
        fast_objective=lambda process: BlockCrossEntropy(process, first or None, whole, hidden, span),
        stops_at_end=True,
    )


def gaussian(width: int = 16, learned: bool = False, self_condition: bool = False, likelihood: bool = True) -> Method:
    """width: width of the embeddings. learned: learn the ends and the shape of the noise schedule γ(t) (Plaid). self_condition:
    condition the network on its previous estimate. likelihood: multiply the network's output by q(z_t | x_0) (Plaid's output
    prior)."""
    return Method(
        title="Gaussian diffusion of learned embeddings, with its likelihood bound",
        paper="Gulrajani and Hashimoto 2023 (Plaid), arXiv:2305.18619; Ho et al. 2020, arXiv:2006.11239",
        process=lambda vocab: Gaussian(vocab, width, learned=learned, self_condition=self_condition),
        parameterization=LikelihoodParameterization if likelihood else MeanParameterization,
        objective=lambda process: GaussianElbo(process, network_free=True),
        bound=GaussianElbo,
        sampler=GaussianSampler(),
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
        title="DDPM: Gaussian noise in T steps on the values of pixels, or on embeddings of tokens",
        paper="Ho et al. 2020, arXiv:2006.11239",
        process=lambda vocab: made(vocab, image=False),
        parameterization=DdpmParameterization,
        objective=DdpmSimple if loss == "simple" else lambda process: DdpmElbo(process, clip=False, share=0.25),
        bound=DdpmElbo,
        sampler=DdpmSampler(),
        image_process=lambda vocab: made(vocab, image=True),
    )


def bfn(accuracy: float = 0.75, likelihood: bool = True) -> Method:
    """accuracy: β(1); 0.75 for text8 in the paper. likelihood: multiply the network's output by the belief (Bayes' rule); in
    the paper the network has to learn this."""
    return Method(
        title="Bayesian flow network: noise on beliefs about tokens",
        paper="Graves et al. 2023, arXiv:2308.07037",
        process=lambda vocab: BayesianFlow(vocab, accuracy),
        parameterization=LikelihoodParameterization if likelihood else MeanParameterization,
        objective=FlowElbo,
        bound=FlowElbo,
        sampler=FlowSampler(),
        fast_objective=FlowCrossEntropy,
    )


# ---- baselines -----------------------------------------------------------------------------------------------------------


def ardm() -> Method:
    """No options."""
    return Method(
        title="ARDM: any-order autoregressive, one token at a time in random order",
        paper="Hoogeboom et al. 2021, arXiv:2110.02037",
        process=lambda vocab: Masked(vocab, Linear()),
        parameterization=MeanParameterization,
        objective=AnyOrder,
        bound=AnyOrder,
        sampler=FirstHitting(),
        time_free=True,
        fast_objective=_fast,
    )


def ar() -> Method:
    """No options."""
    return Method(
        title="Autoregressive baseline: next-token likelihood, exact, left to right",
        paper="Radford et al. 2019; as a baseline in arXiv:2107.03006",
        process=ProcessBase,
        parameterization=NextTokenParameterization,
        objective=Autoregressive,
        bound=Autoregressive,
        sampler=LeftToRight(),
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
    """Return the names of all methods."""
    return list(registered("method"))


def method(name: str) -> Method:
    """Return a method by name, with options after a colon ("md4:offset=1e-4"), or raise ValueError."""
    base, _, settings = name.partition(":")
    found = find("method", base)
    chosen = parse_settings(base, settings, "method")
    check_settings(base, chosen, method_options(base), "method")
    try:
        made = found if isinstance(found, Method) else found(**chosen)
    except TypeError as error:
        raise ValueError(f"the method {name} cannot be built: {error}") from error
    if not isinstance(made, Method):
        raise ValueError(f"the registered method {name!r} must be an unnoise.Method, found {type(made).__name__}")
    return replace(made, name=name)


def method_options(name: str) -> dict[str, Any]:
    """Return the options of a method with their defaults."""
    found = find("method", name)
    return {} if isinstance(found, Method) else accepted_arguments(found) or {}

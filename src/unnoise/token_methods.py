"""Methods with noise on tokens: the process, parameterization, objective and sampler of each paper.

The arguments of a function are the options of its method.
"""

from collections.abc import Callable

from unnoise.method_table import Method, check_choice
from unnoise.network.parameterization import (
    MeanParameterization,
    PlainScoreParameterization,
    RatioParameterization,
    ScoreParameterization,
)
from unnoise.objective import ConcreteScore, CrossEntropy, Elbo, Hybrid, LeaveOneOut, Objective
from unnoise.objective.times import LogUniformTimes, LossAwareTimes, PowerTimes, SineTimes
from unnoise.process import HybridNoise, Markov, Masked, Neighbourhood, Process, Uniform
from unnoise.process.uniform import SHAPES
from unnoise.sampler import Ancestral, EulerLeaping, TweedieLeaping
from unnoise.schedule import Cosine, CosineTable, Geometric, Linear, LogLinear, Offset, PerToken, Polynomial, Schedule

STEPS = 1000  # T of the discrete-time papers
HYBRID = 0.01  # λ of D3PM on text
EPS = 1e-3  # α(1) of SEDD, MDLM and UDLM
SIGMA_MIN, SIGMA_MAX = 1e-4, 20.0  # range of SEDD's geometric noise
GENMD4_START = 1e-3  # lower end of GenMD4's integral
GENMD4_LR = 0.03  # learning rate of the exponents of GenMD4's schedule
EVALUATED = {"masked": 1.5, "uniform": 2.5, "ratio": 4.0}  # power of t = u^power that gave bounds the least variance


def _fast(process: Process) -> CrossEntropy:
    return CrossEntropy(process, initial_max_t=0.3)


# ---- multinomial diffusion and D3PM: T steps -----------------------------------------------------------------------------


def _uniform_in_steps(
    title: str, paper: str, *, steps: int, last_step: str, objective: Callable[[Process], Objective]
) -> Method:
    """Return a method of uniform noise in T steps with a plug-in mean."""
    check_choice("last_step is", last_step, ("product", "mean"))
    until = 1 / steps if last_step == "mean" else 0.0
    return Method(
        title=title,
        paper=paper,
        process=lambda vocab: Uniform(vocab, CosineTable(steps), reverse="plug-in", mean_until=until),
        parameterization=MeanParameterization,
        objective=objective,
        bound=lambda process: Elbo(process, steps=steps, times=PowerTimes(EVALUATED["uniform"])),
        sampler=Ancestral(),
    )


def multinomial(steps: int = STEPS, importance: bool = False, last_step: str = "product") -> Method:
    """Return Multinomial Diffusion.

    importance: sample t where the loss is large (arXiv:2102.05379, appendix).
    last_step: "product" defines p(x_0 | x_1) as the normalized product q(x_1 | x_0)·μ, as in the authors' code; "mean" defines
        it as μ, as in the paper.
    """
    times = LossAwareTimes if importance else PowerTimes
    return _uniform_in_steps(
        "Multinomial Diffusion: uniform noise in T steps, the mean plugged into the posterior",
        "Hoogeboom et al. 2021, arXiv:2102.05379",
        steps=steps,
        last_step=last_step,
        objective=lambda process: Elbo(process, steps=steps, times=times()),
    )


def d3pm_uniform(steps: int = STEPS, hybrid: float = 0.0, last_step: str = "product") -> Method:
    """Return D3PM with uniform noise.

    hybrid: weight λ of the auxiliary cross-entropy, 0 in the paper's runs on text. The bound of the plug-in mean is minimal at
        p(x_0^i | x_t^{≠i}) and the cross-entropy at p(x_0^i | x_t), so the two disagree.
    last_step: as in `multinomial`.
    """
    return _uniform_in_steps(
        "D3PM with uniform noise: T steps, the mean plugged into the posterior",
        "Austin et al. 2021, arXiv:2107.03006",
        steps=steps,
        last_step=last_step,
        objective=lambda process: Hybrid(process, steps=steps, weight=hybrid) if hybrid else Elbo(process, steps=steps),
    )


def d3pm_absorb(steps: int = STEPS, hybrid: float = HYBRID) -> Method:
    """Return D3PM with absorbing noise and a linear schedule, under which the mutual information with the data falls linearly.

    hybrid: weight λ of the cross-entropy.
    """
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
    """Return UDLM.

    eps: remaining signal α(1). The loss in the paper's code uses 0, its time conditioning 1e-3.
    """
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
    """Return MDLM.

    importance: train with log-uniform t (the paper's importance sampling).
    eps: ε of α = 1 − (1 − ε)t; 0 is the linear schedule of LLaDA and Dream.
    time: condition the network on t, which is optional for masked noise.
    """
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
    """Return MD4.

    offset: ε of α = (1 − 2ε)α̃ + ε; 1e-4 in the paper's code.
    schedule: "linear", sampled on the cosine grid of times (the paper's text8, small OpenWebText and CIFAR-10 runs); "cosine"
        (medium OpenWebText run) or "poly" with an exponent w, such as "poly3" for 1 − t^w, both sampled on the uniform grid.
        Linear with the cosine grid and cosine with the uniform grid unmask the same number of tokens in each step.
    """
    known: dict[str, Callable[[], Schedule]] = {"linear": Linear, "cosine": Cosine}
    if str(schedule).startswith("poly"):
        try:
            exponent = float(schedule.removeprefix("poly"))
        except ValueError as error:
            raise ValueError(f"the schedule poly needs an exponent, such as poly3, found {schedule!r}") from error
        known[schedule] = lambda: Polynomial(exponent)
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


def gidd(p_uniform: float = 0.2) -> Method:
    """Return GIDD.

    p_uniform: p_u, the probability that a token is uniform noise at t = ½; 0 is mdlm with the linear schedule.
    """
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
    """Return GenMD4.

    power: initial exponents of the schedule.
    """
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


def _sedd(noise: Callable[[int, Schedule], Process], name: str, *, schedule: Callable[[], Schedule], scaled: bool) -> Method:
    return Method(
        title=f"SEDD with {name} noise: score entropy",
        paper="Lou et al. 2023, arXiv:2310.16834",
        process=lambda vocab: noise(vocab, schedule()),
        parameterization=ScoreParameterization if scaled else PlainScoreParameterization,
        objective=Elbo,
        bound=lambda process: Elbo(process, power=EVALUATED["uniform" if name == "uniform" else "masked"]),
        sampler=TweedieLeaping(),
    )


def _sedd_schedule(name: str, sigma_min: float, sigma_max: float) -> Callable[[], Schedule]:
    check_choice("the schedule of sedd is", name, ("loglinear", "geometric"))
    return lambda: LogLinear(EPS) if name == "loglinear" else Geometric(sigma_min, sigma_max)


def sedd_absorb(
    schedule: str = "loglinear", sigma_min: float = SIGMA_MIN, sigma_max: float = SIGMA_MAX, scaled: bool = True
) -> Method:
    """Return SEDD with absorbing noise.

    schedule: loglinear, or geometric with σ from sigma_min to sigma_max.
    scaled: scale the network's output to the size of the ratios at t; otherwise it is log s itself.
    """
    return _sedd(Masked, "absorbing", schedule=_sedd_schedule(schedule, sigma_min, sigma_max), scaled=scaled)


def sedd_uniform(
    schedule: str = "loglinear", sigma_min: float = SIGMA_MIN, sigma_max: float = SIGMA_MAX, scaled: bool = True
) -> Method:
    """Return SEDD with uniform noise. The options are the same as for `sedd_absorb`."""
    return _sedd(Uniform, "uniform", schedule=_sedd_schedule(schedule, sigma_min, sigma_max), scaled=scaled)


def csm(weighted: bool = True, neighbours: str = "complete") -> Method:
    """Return concrete score matching.

    weighted: multiply the squared loss by (1 − α_t)²; the paper does not, so small t dominate there.
    neighbours: tokens y whose ratios are learned and to which the noise jumps: complete (all tokens), line (y = x ± 1, for
        ordered values such as pixel levels) or ring.
    """
    check_choice("the neighbours of csm are", neighbours, SHAPES)

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

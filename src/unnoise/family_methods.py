"""Methods of other families: insertion, blocks, continuous states and the autoregressive baseline, one function per paper.

The arguments of a function are the options of its method.
"""

from typing import cast

from unnoise.families.any_order import AnyOrder
from unnoise.families.autoregressive import Autoregressive, LeftToRight, NextTokenParameterization
from unnoise.families.bayesian_flow import BayesianFlow, FlowCrossEntropy, FlowElbo, FlowSampler
from unnoise.families.block import BlockParameterization, Blocks, BlockSampler
from unnoise.families.block_objective import BlockCrossEntropy, BlockElbo
from unnoise.families.ddpm import SCHEDULES, Ddpm, Embed, Target, Variance
from unnoise.families.ddpm_objective import DdpmElbo, DdpmParameterization, DdpmSampler, DdpmSimple
from unnoise.families.gaussian import Gaussian, GaussianCrossEntropy, GaussianElbo, GaussianSampler
from unnoise.families.insertion import EndedInsertionParameterization, Insertion, InsertionElbo, InsertionParameterization
from unnoise.families.insertion_sampler import InsertionSampler
from unnoise.method_table import Method, check_choice
from unnoise.network.parameterization import (
    LikelihoodParameterization,
    MeanParameterization,
)
from unnoise.objective import CrossEntropy
from unnoise.process import Masked, ProcessBase
from unnoise.sampler import FirstHitting
from unnoise.schedule import Linear


def flexmdm(layout: str = "start") -> Method:
    """Return Flex-MDM.

    layout: "start" puts a symbol before the sequence and a gap after each position. "end", as in the paper's code, puts padding
        after the sequence and a gap before each position, and does not scale the gap outputs with t.
    """
    layouts = {"start": InsertionParameterization, "end": EndedInsertionParameterization}
    check_choice("the layout of flexmdm is", layout, tuple(layouts))
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
    """Return BD3-LM, with blocks of `block` tokens. The other options concern the fast loss.

    whole: share of batches in which a sequence is one block, as in mdlm, so that the model can also infill before given text.
    first: initial block size, doubled up to `block` during training.
    hidden, span: largest share of tokens, and number of adjacent tokens, that are masked together in these whole sequences.
    """
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
    """Return Gaussian diffusion of embeddings of a given width.

    learned: learn the ends and the shape of the noise schedule γ(t) (Plaid).
    self_condition: condition the network on its previous estimate.
    likelihood: multiply the network's output by q(z_t | x_0) (Plaid's output prior).
    """
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
    steps: int = 1000,
    schedule: str = "auto",
    target: str = "eps",
    loss: str = "simple",
    variance: str = "posterior",
    embed: str = "auto",
    width: int = 16,
) -> Method:
    """Return DDPM in T = `steps` steps.

    schedule: table of β_t, linear (for images by default), cosine, or sqrt (for text by default).
    target: prediction of the network, eps, x0 or mean (μ̃_t).
    loss: simple or elbo.
    variance: σ_t² of the reverse step, posterior (β̃_t) or beta (β_t).
    embed: values (numbers from −1 to 1, for images by default), fixed (random vectors, for text by default) or learned vectors.
    width: width of the vectors.
    """
    check_choice("the schedule of ddpm is", schedule, ("auto", *SCHEDULES))
    check_choice("the loss of ddpm is", loss, ("simple", "elbo"))
    check_choice("the embed of ddpm is", embed, ("auto", "values", "fixed", "learned"))

    def made(vocab: int, image: bool) -> Ddpm:
        chosen = ("values" if image else "fixed") if embed == "auto" else embed
        betas = SCHEDULES[("linear" if chosen == "values" else "sqrt") if schedule == "auto" else schedule](steps)
        return Ddpm(vocab, betas, cast(Target, target), cast(Variance, variance), cast(Embed, chosen), width=width)

    made(2, image=False)  # checks the other options
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
    """Return a Bayesian flow network.

    accuracy: β(1); 0.75 for text8 in the paper.
    likelihood: multiply the network's output by the belief (Bayes' rule); in the paper the network has to learn this.
    """
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


def ardm() -> Method:
    """Return ARDM."""
    return Method(
        title="ARDM: any-order autoregressive, one token at a time in random order",
        paper="Hoogeboom et al. 2021, arXiv:2110.02037",
        process=lambda vocab: Masked(vocab, Linear()),
        parameterization=MeanParameterization,
        objective=AnyOrder,
        bound=AnyOrder,
        sampler=FirstHitting(),
        time_free=True,
        fast_objective=lambda process: CrossEntropy(process, initial_max_t=0.3),
    )


def ar() -> Method:
    """Return the autoregressive baseline."""
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

"""unnoise: discrete diffusion models, text first. Exact, tested, at home on a CPU.

Names are loaded when they are first used, so that `import unnoise` and `unnoise --help` do not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from unnoise.any_order import AnyOrder as AnyOrder
    from unnoise.autoregressive import Autoregressive as Autoregressive, LeftToRight as LeftToRight
    from unnoise.bayesian_flow import BayesianFlow as BayesianFlow, FlowElbo as FlowElbo, FlowSampler as FlowSampler
    from unnoise.data import Codec as Codec, codec as codec
    from unnoise.data.corpus import Corpus as Corpus, corpus as corpus
    from unnoise.denoiser import Denoiser as Denoiser
    from unnoise.embedding_diffusion import (
        Ddim as Ddim,
        GaussianElbo as GaussianElbo,
        GaussianSampler as GaussianSampler,
    )
    from unnoise.insertion import (
        ConfidentInsertion as ConfidentInsertion,
        InsertionElbo as InsertionElbo,
        InsertionPrediction as InsertionPrediction,
        InsertionSampler as InsertionSampler,
    )
    from unnoise.method_table import Method as Method, method as method, methods as methods
    from unnoise.model import Model as Model, Score as Score, load as load
    from unnoise.objective import (
        ConcreteScore as ConcreteScore,
        CrossEntropy as CrossEntropy,
        Elbo as Elbo,
        Hybrid as Hybrid,
        LeaveOneOut as LeaveOneOut,
        Objective as Objective,
        ScoreEntropy as ScoreEntropy,
    )
    from unnoise.prediction import (
        MeanPrediction as MeanPrediction,
        Prediction as Prediction,
        ScorePrediction as ScorePrediction,
    )
    from unnoise.process import (
        Canvas as Canvas,
        Markov as Markov,
        Masked as Masked,
        Process as Process,
        Uniform as Uniform,
    )
    from unnoise.process.gaussian import Gaussian as Gaussian
    from unnoise.process.insertion import Insertion as Insertion
    from unnoise.sampler import (
        Ancestral as Ancestral,
        Confidence as Confidence,
        EntropyBounded as EntropyBounded,
        EulerLeaping as EulerLeaping,
        FirstHitting as FirstHitting,
        Frame as Frame,
        LeastEntropy as LeastEntropy,
        Margin as Margin,
        Metropolis as Metropolis,
        PredictorCorrector as PredictorCorrector,
        Remasking as Remasking,
        Sampler as Sampler,
        TweedieLeaping as TweedieLeaping,
        chain as chain,
        sample as sample,
    )
    from unnoise.schedule import (
        Cosine as Cosine,
        CosineTable as CosineTable,
        Geometric as Geometric,
        Linear as Linear,
        LogLinear as LogLinear,
        PerToken as PerToken,
        Polynomial as Polynomial,
        Schedule as Schedule,
    )
    from unnoise.trainer import Report as Report, train as train

__version__ = "0.1.0"

_HOME = {
    "any_order": ["AnyOrder"],
    "autoregressive": ["Autoregressive", "LeftToRight"],
    "bayesian_flow": ["BayesianFlow", "FlowElbo", "FlowSampler"],
    "data": ["Codec", "codec"],
    "data.corpus": ["Corpus", "corpus"],
    "denoiser": ["Denoiser"],
    "embedding_diffusion": ["Ddim", "GaussianElbo", "GaussianSampler"],
    "insertion": ["ConfidentInsertion", "InsertionElbo", "InsertionPrediction", "InsertionSampler"],
    "method_table": ["Method", "method", "methods"],
    "model": ["Model", "Score", "load"],
    "objective": ["ConcreteScore", "CrossEntropy", "Elbo", "Hybrid", "LeaveOneOut", "Objective", "ScoreEntropy"],
    "prediction": ["MeanPrediction", "Prediction", "ScorePrediction"],
    "process": ["Canvas", "Markov", "Masked", "Process", "Uniform"],
    "process.gaussian": ["Gaussian"],
    "process.insertion": ["Insertion"],
    "sampler": [
        "Ancestral",
        "Confidence",
        "EntropyBounded",
        "EulerLeaping",
        "FirstHitting",
        "Frame",
        "LeastEntropy",
        "Margin",
        "Metropolis",
        "PredictorCorrector",
        "Remasking",
        "Sampler",
        "TweedieLeaping",
        "chain",
        "sample",
    ],
    "schedule": ["Cosine", "CosineTable", "Geometric", "Linear", "LogLinear", "PerToken", "Polynomial", "Schedule"],
    "trainer": ["Report", "train"],
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}
__all__ = list(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"unnoise has no {name!r}")
    value = vars(import_module(f"unnoise.{_MODULE_OF[name]}"))[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return ["__version__", *__all__]

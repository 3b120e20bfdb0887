"""unnoise: discrete diffusion models for text and other discrete data.

Each public name is imported when it is first used, so that `import unnoise` and `unnoise --help` do not wait for torch.
`__init__.pyi` lists the same names for type checkers.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = (
    ("unnoise.data", "Codec codec"),
    ("unnoise.data.corpus", "Corpus corpus"),
    ("unnoise.data.documents", "Documents"),
    ("unnoise.data.mixture", "Mixture"),
    ("unnoise.data.prepare", "prepare"),
    ("unnoise.data.shards", "ShardedCorpus"),
    ("unnoise.denoiser", "Denoiser SamplingDenoiser predict predict_clean"),
    ("unnoise.families.any_order", "AnyOrder"),
    ("unnoise.families.autoregressive", "Autoregressive LeftToRight NextTokenPrediction"),
    ("unnoise.families.bayesian_flow", "BayesianFlow FlowElbo FlowSampler"),
    ("unnoise.families.block", "Blocks BlockSampler"),
    ("unnoise.families.block_objective", "BlockCrossEntropy BlockElbo BlockImportanceWeighted"),
    ("unnoise.families.ddpm", "Ddpm cosine_betas linear_betas sqrt_betas"),
    ("unnoise.families.ddpm_objective", "DdpmElbo DdpmParameterization DdpmPrediction DdpmSampler DdpmSimple"),
    ("unnoise.families.gaussian", "Gaussian GaussianElbo GaussianSampler"),
    ("unnoise.families.insertion", "Insertion InsertionElbo InsertionPrediction"),
    ("unnoise.families.insertion_sampler", "InsertionSampler"),
    ("unnoise.method_table", "Method method methods"),
    ("unnoise.model.generate", "Step"),
    ("unnoise.model.io", "init_from load"),
    ("unnoise.model.likelihood", "BitsPerChar Score"),
    ("unnoise.model.model", "Model"),
    ("unnoise.model.sampling_options", "SamplingOptions"),
    ("unnoise.network.attention", "KVCache"),
    ("unnoise.network.ddit", "Ddit"),
    ("unnoise.network.llama", "Llama"),
    ("unnoise.network.network_base", "Network"),
    (
        "unnoise.network.parameterization",
        "LikelihoodParameterization MeanParameterization Parameterization RatioParameterization ScoreParameterization",
    ),
    ("unnoise.network.transformer", "Transformer"),
    (
        "unnoise.objective",
        "CampbellElbo ConcreteScore CrossEntropy Elbo Hybrid ImportanceWeighted LeaveOneOut Objective ScoreEntropy",
    ),
    ("unnoise.prediction", "MeanPrediction Prediction RatioPrediction ScorePrediction TokenPrediction"),
    ("unnoise.process", "HybridNoise HybridSchedule Markov Masked MaskedMarkov Neighbourhood Process ProcessBase Uniform"),
    ("unnoise.recipes", "Recipe recipe"),
    ("unnoise.registry", "register"),
    (
        "unnoise.sampler",
        "Ancestral Confidence EntropyBounded EulerLeaping FirstHitting Frame Metropolis PredictorCorrector Remasking "
        "Sampler TweedieLeaping sample sample_frames",
    ),
    ("unnoise.sampler.ancestral", "Psi"),
    ("unnoise.sampler.sampling", "sample_from"),
    ("unnoise.schedule", "Cosine CosineTable Geometric Linear LogLinear Offset PerToken Polynomial Schedule Table"),
    ("unnoise.training.callbacks", "Callback"),
    ("unnoise.training.run", "train"),
    ("unnoise.training.trainer", "Report"),
    ("unnoise.training.training_options", "RunOptions TrainingOptions"),
)
_MODULE_OF = {name: module for module, names in _PUBLIC for name in names.split()}
__all__ = list(_MODULE_OF)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"unnoise has no {name!r}")
    value = vars(import_module(_MODULE_OF[name]))[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return ["__version__", *__all__]

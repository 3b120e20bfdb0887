"""The public names of unnoise, for type checkers. A test keeps the list equal to the one in `unnoise/__init__.py`."""

from unnoise.data import Codec as Codec, codec as codec
from unnoise.data.corpus import Corpus as Corpus, corpus as corpus
from unnoise.data.documents import Documents as Documents
from unnoise.data.mixture import Mixture as Mixture
from unnoise.data.prepare import prepare as prepare
from unnoise.data.shards import ShardedCorpus as ShardedCorpus
from unnoise.denoiser import (
    Denoiser as Denoiser,
    SamplingDenoiser as SamplingDenoiser,
    predict as predict,
    predict_clean as predict_clean,
)
from unnoise.families.any_order import AnyOrder as AnyOrder
from unnoise.families.autoregressive import (
    Autoregressive as Autoregressive,
    LeftToRight as LeftToRight,
    NextTokenPrediction as NextTokenPrediction,
)
from unnoise.families.bayesian_flow import BayesianFlow as BayesianFlow, FlowElbo as FlowElbo, FlowSampler as FlowSampler
from unnoise.families.block import Blocks as Blocks, BlockSampler as BlockSampler
from unnoise.families.block_objective import (
    BlockCrossEntropy as BlockCrossEntropy,
    BlockElbo as BlockElbo,
    BlockImportanceWeighted as BlockImportanceWeighted,
)
from unnoise.families.ddpm import (
    Ddpm as Ddpm,
    cosine_betas as cosine_betas,
    linear_betas as linear_betas,
    sqrt_betas as sqrt_betas,
)
from unnoise.families.ddpm_objective import (
    DdpmElbo as DdpmElbo,
    DdpmParameterization as DdpmParameterization,
    DdpmPrediction as DdpmPrediction,
    DdpmSampler as DdpmSampler,
    DdpmSimple as DdpmSimple,
)
from unnoise.families.gaussian import Gaussian as Gaussian, GaussianElbo as GaussianElbo, GaussianSampler as GaussianSampler
from unnoise.families.insertion import (
    Insertion as Insertion,
    InsertionElbo as InsertionElbo,
    InsertionPrediction as InsertionPrediction,
)
from unnoise.families.insertion_sampler import InsertionSampler as InsertionSampler
from unnoise.method_table import Method as Method, method as method, methods as methods
from unnoise.model.generate import Step as Step
from unnoise.model.io import init_from as init_from, load as load
from unnoise.model.likelihood import BitsPerChar as BitsPerChar, Score as Score
from unnoise.model.model import Model as Model
from unnoise.model.sampling_options import SamplingOptions as SamplingOptions
from unnoise.network.attention import KVCache as KVCache
from unnoise.network.ddit import Ddit as Ddit
from unnoise.network.llama import Llama as Llama
from unnoise.network.network_base import Network as Network
from unnoise.network.parameterization import (
    LikelihoodParameterization as LikelihoodParameterization,
    MeanParameterization as MeanParameterization,
    Parameterization as Parameterization,
    RatioParameterization as RatioParameterization,
    ScoreParameterization as ScoreParameterization,
)
from unnoise.network.transformer import Transformer as Transformer
from unnoise.objective import (
    CampbellElbo as CampbellElbo,
    ConcreteScore as ConcreteScore,
    CrossEntropy as CrossEntropy,
    Elbo as Elbo,
    Hybrid as Hybrid,
    ImportanceWeighted as ImportanceWeighted,
    LeaveOneOut as LeaveOneOut,
    Objective as Objective,
    ScoreEntropy as ScoreEntropy,
)
from unnoise.prediction import (
    MeanPrediction as MeanPrediction,
    Prediction as Prediction,
    RatioPrediction as RatioPrediction,
    ScorePrediction as ScorePrediction,
    TokenPrediction as TokenPrediction,
)
from unnoise.process import (
    HybridNoise as HybridNoise,
    HybridSchedule as HybridSchedule,
    Markov as Markov,
    Masked as Masked,
    MaskedMarkov as MaskedMarkov,
    Neighbourhood as Neighbourhood,
    Process as Process,
    ProcessBase as ProcessBase,
    Uniform as Uniform,
)
from unnoise.recipes import Recipe as Recipe, recipe as recipe
from unnoise.registry import register as register
from unnoise.sampler import (
    Ancestral as Ancestral,
    Confidence as Confidence,
    EntropyBounded as EntropyBounded,
    EulerLeaping as EulerLeaping,
    FirstHitting as FirstHitting,
    Frame as Frame,
    Metropolis as Metropolis,
    PredictorCorrector as PredictorCorrector,
    Remasking as Remasking,
    Sampler as Sampler,
    TweedieLeaping as TweedieLeaping,
    sample as sample,
    sample_frames as sample_frames,
)
from unnoise.sampler.ancestral import Psi as Psi
from unnoise.sampler.sampling import sample_from as sample_from
from unnoise.schedule import (
    Cosine as Cosine,
    CosineTable as CosineTable,
    Geometric as Geometric,
    Linear as Linear,
    LogLinear as LogLinear,
    Offset as Offset,
    PerToken as PerToken,
    Polynomial as Polynomial,
    Schedule as Schedule,
    Table as Table,
)
from unnoise.training.callbacks import Callback as Callback
from unnoise.training.run import train as train
from unnoise.training.trainer import Report as Report
from unnoise.training.training_options import RunOptions as RunOptions, TrainingOptions as TrainingOptions

__version__: str

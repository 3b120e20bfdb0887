"""Gaussian diffusion in T steps (DDPM, arXiv:2006.11239): of pixel values, or of the embeddings of tokens."""

from unnoise.families.ddpm.betas import cosine_betas, linear_betas, sqrt_betas
from unnoise.families.ddpm.denoiser import DdpmParameterization, DdpmPrediction
from unnoise.families.ddpm.objective import DdpmElbo, DdpmSimple
from unnoise.families.ddpm.process import Ddpm
from unnoise.families.ddpm.sampler import DdpmSampler

__all__ = [
    "Ddpm",
    "DdpmElbo",
    "DdpmParameterization",
    "DdpmPrediction",
    "DdpmSampler",
    "DdpmSimple",
    "cosine_betas",
    "linear_betas",
    "sqrt_betas",
]

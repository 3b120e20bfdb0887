"""Block diffusion: blocks from left to right, masked diffusion within each (BD3-LM, arXiv:2503.09573)."""

from unnoise.families.block.denoiser import BlockParameterization, BlockPrediction
from unnoise.families.block.importance_weighted import BlockImportanceWeighted
from unnoise.families.block.objective import BlockCrossEntropy, BlockElbo
from unnoise.families.block.process import Blocks
from unnoise.families.block.sampler import BlockSampler

__all__ = [
    "BlockCrossEntropy",
    "BlockElbo",
    "BlockImportanceWeighted",
    "BlockParameterization",
    "BlockPrediction",
    "BlockSampler",
    "Blocks",
]

"""Flex-MDM: texts of variable length (arXiv:2509.01025)."""

from unnoise.families.insertion.denoiser import (
    EndedInsertionParameterization,
    InsertionParameterization,
    InsertionPrediction,
)
from unnoise.families.insertion.objective import InsertionElbo
from unnoise.families.insertion.process import Insertion
from unnoise.families.insertion.sampler import InsertionSampler

__all__ = [
    "EndedInsertionParameterization",
    "Insertion",
    "InsertionElbo",
    "InsertionParameterization",
    "InsertionPrediction",
    "InsertionSampler",
]

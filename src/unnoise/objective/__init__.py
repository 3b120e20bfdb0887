"""Bounds and losses for token processes."""

from unnoise.objective.elbo import CampbellElbo, Elbo, Hybrid, ImportanceWeighted, LeaveOneOut
from unnoise.objective.losses import ConcreteScore, CrossEntropy, ScoreEntropy
from unnoise.objective.objective_base import DenoisingObjective, Objective

__all__ = [
    "CampbellElbo",
    "ConcreteScore",
    "CrossEntropy",
    "DenoisingObjective",
    "Elbo",
    "Hybrid",
    "ImportanceWeighted",
    "LeaveOneOut",
    "Objective",
    "ScoreEntropy",
]

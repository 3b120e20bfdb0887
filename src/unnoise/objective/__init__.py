"""Bounds and losses for token processes."""

from unnoise.objective.base import Denoising, Objective
from unnoise.objective.campbell import CampbellElbo
from unnoise.objective.cross_entropy import CrossEntropy
from unnoise.objective.elbo import Elbo, Hybrid
from unnoise.objective.importance_weighted import ImportanceWeighted
from unnoise.objective.leave_one_out import LeaveOneOut
from unnoise.objective.score import ConcreteScore, ScoreEntropy

__all__ = [
    "CampbellElbo",
    "ConcreteScore",
    "CrossEntropy",
    "Denoising",
    "Elbo",
    "Hybrid",
    "ImportanceWeighted",
    "LeaveOneOut",
    "Objective",
    "ScoreEntropy",
]

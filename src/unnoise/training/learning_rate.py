"""The learning rate over a run: warm-up, and the shape of its fall."""

import math

from unnoise.training.options import TrainingOptions


def learning_rate_factor(progress: float, options: TrainingOptions) -> float:
    """The factor on the learning rates: rising over the warm-up, falling over the cool-down.

    With c the share of the cool-down that is left, from 1 to 0: c (linear), ½(1 − cos πc) (cosine), decay_to^{1−c}
    (exponential); or √(w/progress) after a warm-up of w (inverse-sqrt), or 1 (constant).
    """
    warmup, rise = _warmup(progress, options)
    left = min(1.0, max(0.0, 1 - progress) / max(options.cooldown, 1e-9))
    match options.lr_schedule:
        case "linear":
            return rise * left
        case "cosine":
            return rise * 0.5 * (1 - math.cos(math.pi * left))
        case "exponential":
            return rise * options.decay_to ** (1 - left)
        case "inverse-sqrt":
            return rise * math.sqrt(warmup / max(warmup, progress))
        case "constant":
            return rise


def _warmup(progress: float, options: TrainingOptions) -> tuple[float, float]:
    """The share of the run that the warm-up takes, and how far the rates have risen."""
    if options.warmup_steps is None:
        return max(options.warmup, 1e-3), min(1.0, (progress + 1e-3) / max(options.warmup, 1e-3))
    if options.steps is None:
        raise ValueError("warmup_steps needs a run that is counted in steps: give warmup, a share of the run, or steps")
    return options.warmup_steps / options.steps, min(1.0, (progress * options.steps + 1) / options.warmup_steps)

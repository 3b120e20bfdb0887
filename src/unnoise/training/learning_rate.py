"""Learning rate schedules: warm-up and cool-down."""

import math

from unnoise.training.options import TrainingOptions


def learning_rate_factor(progress: float, options: TrainingOptions) -> float:
    """Return the factor on the learning rates, which rises over the warm-up and falls over the cool-down.

    Let c be the remaining fraction of the cool-down. The factor is c (linear), ½(1 − cos πc) (cosine), decay_to^{1−c}
    (exponential), √(w/progress) after a warm-up of w (inverse-sqrt), or 1 (constant).
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
    """Return the fraction of the run that is warm-up, and the factor of the warm-up."""
    if options.warmup_steps is None:
        return max(options.warmup, 1e-3), min(1.0, (progress + 1e-3) / max(options.warmup, 1e-3))
    if options.steps is None:
        raise ValueError("warmup_steps needs a run counted in steps: give steps, or warmup as a fraction of the run")
    return options.warmup_steps / options.steps, min(1.0, (progress * options.steps + 1) / options.warmup_steps)

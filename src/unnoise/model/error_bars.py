"""Error bars of means of random draws: standard errors, and confidence intervals that allow for few draws."""

import math
from dataclasses import dataclass
from statistics import NormalDist

FREEDOM = 12  # degrees of freedom that an error bar needs
COVERAGE = 0.95
KURTOSIS = 2.0  # excess kurtosis of the draws that an interval allows for


@dataclass(frozen=True)
class Spread:
    """Estimated variances of the independent parts of a sum, and their degrees of freedom."""

    variances: tuple[float, ...] = ()
    freedom: tuple[int, ...] = ()

    def __add__(self, other: "Spread") -> "Spread":
        return Spread(self.variances + other.variances, self.freedom + other.freedom)

    @property
    def known(self) -> bool:
        """True if there are enough draws for an error bar."""
        return not self.variances or sum(self.freedom) >= FREEDOM

    @property
    def stderr(self) -> float:
        """The standard error of the sum, √Σ_i V_i; infinite if a part has only one set of draws."""
        return math.sqrt(sum(self.variances))

    def half_width(self, coverage: float = COVERAGE) -> float:
        """Return half the width of a confidence interval, t·stderr with a quantile t of Student's distribution.

        The degrees of freedom are (Σ V_i)²/Σ(V_i²/f_i) (Welch and Satterthwaite) divided by 1 + κ/2, and at least 3. The excess
        kurtosis κ = 2 of the draws makes the variance of a sample variance 1 + κ/2 times as large.
        """
        total = sum(self.variances)
        if total == 0:
            return 0.0
        squares = sum(v * v / f for v, f in zip(self.variances, self.freedom, strict=True))
        freedom = total * total / squares / (1 + KURTOSIS / 2)
        return student((1 + coverage) / 2, max(freedom, 3.0)) * self.stderr


def with_error(value: float, stderr: float | None, digits: int = 3) -> str:
    """Format a number with its standard error, if it has one: "3.142 ± 0.010"."""
    return f"{value:.{digits}f} ± {stderr:.{digits}f}" if stderr else f"{value:.{digits}f}"


def student(p: float, freedom: float) -> float:
    """Return the p-quantile of Student's t distribution by the expansion in 1/f (Cornish and Fisher), to 0.2 % if f ≥ 3."""
    z = NormalDist().inv_cdf(p)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / freedom**i for i, term in enumerate(terms))


def chi_square(p: float, freedom: float) -> float:
    """Return the p-quantile of the χ² distribution by the cube-root approximation (Wilson and Hilferty 1931)."""
    z = NormalDist().inv_cdf(p)
    return freedom * (1 - 2 / (9 * freedom) + z * math.sqrt(2 / (9 * freedom))) ** 3

"""Configuration of the ddit network, including its time input."""

from dataclasses import dataclass

from torch import Tensor

from unnoise.network.config import DERIVED, NetworkConfig
from unnoise.schedule import Geometric, LogLinear

TIME_INPUTS = ("loglinear", "geometric", "t", "1-t")


@dataclass(frozen=True)
class DditConfig(NetworkConfig):
    """Fields of a `Ddit`, in addition to the common ones.

    hidden: features of the MLP; four times the width by default.
    cond_width: features of c; 128 in every published network.
    head_rows: rows of the output head, of which the first `outputs` are used; `outputs` by default.
    time: whether the network is conditioned on t.
    time_input: form in which t enters: σ of the schedule `loglinear` (with sigma_eps) or `geometric` (with sigma_min and
        sigma_max), t itself, or 1-t.
    causal: whether a position attends only to itself and to earlier positions.
    gaps: whether there is a second head with one number per position.
    labels: number of classes; one more embedding stands for "no label".
    """

    hidden: int = DERIVED
    cond_width: int = 128
    head_rows: int = DERIVED
    time: bool = False
    time_input: str = "loglinear"
    sigma_eps: float = 1e-3
    sigma_min: float = 1e-4
    sigma_max: float = 20.0
    causal: bool = False
    gaps: bool = False
    labels: int = 0

    def __post_init__(self) -> None:
        self.derive(hidden=4 * self.width, head_rows=self.outputs)
        self.check_sizes("hidden", "cond_width", "head_rows")
        self.check_heads()
        if self.head_rows < self.outputs:
            raise ValueError(f"a network's head_rows must be ≥ its outputs, found {self.head_rows} and {self.outputs}")
        if self.time_input not in TIME_INPUTS:
            raise ValueError(f"a network's time_input is one of {', '.join(TIME_INPUTS)}, found {self.time_input!r}")
        self.schedule()

    def schedule(self) -> LogLinear | Geometric:
        """Return the schedule that defines σ(t)."""
        return Geometric(self.sigma_min, self.sigma_max) if self.time_input == "geometric" else LogLinear(self.sigma_eps)

    def read_time(self, t: Tensor) -> Tensor:
        """Return the network's time input: [...] → [...]."""
        if self.time_input in ("t", "1-t"):
            return t if self.time_input == "t" else 1 - t
        return self.schedule().sigma(t)

"""The configuration of the network ddit, and what it reads of time."""

from dataclasses import dataclass

from torch import Tensor

from unnoise.network.config import check_heads, check_sizes
from unnoise.schedule import Geometric, LogLinear

TIME_INPUTS = ("loglinear", "geometric", "t", "1-t")


@dataclass(frozen=True)
class DditConfig:
    """How large a network is, and what it reads and writes.

    inputs: how many states a token may have, or how many numbers a position holds.
    outputs: entries of the last axis.
    length: the longest text.
    width, depth, heads: features of a position, blocks, attention heads.
    hidden: features of the perceptron; four times the width by default.
    cond_width: features of c; 128 in every published network.
    head_rows: rows of the output head, of which the first `outputs` are used; as many as these by default.
    time: whether t is an input.
    time_input: what is read of it: σ of the schedule `loglinear` (with sigma_eps) or `geometric` (with sigma_min and
        sigma_max), t itself, or 1-t.
    causal: whether a position sees only what is before it.
    gaps: whether there is a second head, one number for each position.
    labels: how many classes a text can be said to have; the row after theirs stands for none.
    """

    inputs: int
    outputs: int
    length: int
    width: int
    depth: int
    heads: int
    hidden: int
    cond_width: int
    head_rows: int
    time: bool
    time_input: str
    sigma_eps: float
    sigma_min: float
    sigma_max: float
    causal: bool
    gaps: bool
    labels: int

    def __post_init__(self) -> None:
        check_sizes(self, "inputs", "outputs", "length", "width", "depth", "heads", "hidden", "cond_width", "head_rows")
        check_heads(self.width, self.heads)
        if self.head_rows < self.outputs:
            raise ValueError(f"a network's head_rows must be ≥ its outputs, found {self.head_rows} and {self.outputs}")
        if self.time_input not in TIME_INPUTS:
            raise ValueError(f"a network's time_input is one of {', '.join(TIME_INPUTS)}, found {self.time_input!r}")
        self.schedule()

    def schedule(self) -> LogLinear | Geometric:
        """The schedule whose σ is read."""
        return Geometric(self.sigma_min, self.sigma_max) if self.time_input == "geometric" else LogLinear(self.sigma_eps)

    def read_time(self, t: Tensor) -> Tensor:
        """What the network reads of t: [...] → [...]."""
        if self.time_input in ("t", "1-t"):
            return t if self.time_input == "t" else 1 - t
        return self.schedule().sigma(t)

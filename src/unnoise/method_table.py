"""The method table: `Method`, which combines the parts of a paper, and the lookup of methods by name.

An entry is a function in `token_methods` or `family_methods`, which is imported on first use. Its arguments are the options of
the method, which are set in its name: "md4:offset=1e-4".
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from unnoise.network.parameterization import Parameterization
from unnoise.objective import Objective
from unnoise.process import ProcessBase
from unnoise.registry import accepted_arguments, check_settings, find, parse_settings, register_builtin, registered
from unnoise.sampler import Sampler

P = TypeVar("P", bound=ProcessBase)
ENTRIES = {
    "unnoise.token_methods": (
        *("multinomial", "d3pm-uniform", "d3pm-absorb", "udlm", "mdlm", "md4", "genmd4", "gidd"),
        *("sedd-absorb", "sedd-uniform", "csm"),
    ),
    "unnoise.family_methods": ("flexmdm", "bd3lm", "gaussian", "ddpm", "bfn", "ardm", "ar"),
}
for module, names in ENTRIES.items():
    register_builtin("method", {name: f"{module}:{name.replace('-', '_')}" for name in names})


@dataclass(frozen=True, kw_only=True)
class Method(Generic[P]):
    """The parts that a paper combines.

    title: short description.
    paper: authors, year and arXiv number.
    process: function from the vocabulary size to the forward process.
    parameterization: class that turns the network's output into a prediction.
    objective: function from the process to the paper's training loss.
    bound: function from the process to the bound that is reported, or to −log p itself if `exact`.
    sampler: the paper's sampler.
    time_free: whether the network ignores t.
    exact: whether `bound` is −log p itself.
    fast_objective: function from the process to a loss that trains faster, if there is one; `bound` is then used only for
        evaluation.
    stops_at_end: whether a sequence stops at its EOS token; other methods pad with EOS to a common length.
    process_lr: learning rate of the parameters of the process (noise schedule, embeddings); None for the network's.
    image_process: like `process`, for pixels of images, whose tokens are ordered levels; None for `process` itself.
    name: the name in the table, with options; set by `method`.
    """

    title: str
    paper: str
    process: Callable[[int], P]
    parameterization: type[Parameterization]
    objective: Callable[[P], Objective]
    bound: Callable[[P], Objective]
    sampler: Sampler
    time_free: bool = False
    exact: bool = False
    fast_objective: Callable[[P], Objective] | None = None
    stops_at_end: bool = False
    process_lr: float | None = None
    image_process: Callable[[int], P] | None = None
    name: str = ""

    def process_for(self, vocab: int, grid: Sequence[int] = ()) -> P:
        """Return the process for a vocabulary size; grid: rows and columns of an image, for image codecs."""
        return self.image_process(vocab) if grid and self.image_process is not None else self.process(vocab)

    def network_fields(
        self, vocab: int, length: int, *, labels: int = 0, grid: tuple[int, ...] = (), channels: int = 1
    ) -> dict[str, Any]:
        """Return the fields of a network's configuration that the method and the data determine."""
        process = self.process_for(vocab, grid)
        if process.variable_length and grid:
            raise ValueError(
                f"{self.name} is for texts of variable length, but images have a fixed size: use a different method"
            )
        data = {"labels": labels, "grid": grid, "channels": channels}
        return data | self.parameterization.network_config(process, length, self.time_free)


def methods() -> list[str]:
    """Return the names of all methods."""
    return list(registered("method"))


def method(name: str) -> Method:
    """Return a method by name, with options after a colon ("md4:offset=1e-4"), or raise ValueError."""
    base, _, settings = name.partition(":")
    found = find("method", base)
    chosen = parse_settings(base, settings, "method")
    check_settings(base, chosen, method_options(base), "method")
    try:
        made = found if isinstance(found, Method) else found(**chosen)
    except TypeError as error:
        raise ValueError(f"the method {name} cannot be built: {error}") from error
    if not isinstance(made, Method):
        raise ValueError(f"the registered method {name!r} must be an unnoise.Method, found {type(made).__name__}")
    return replace(made, name=name)


def method_options(name: str) -> dict[str, Any]:
    """Return the options of a method with their defaults."""
    found = find("method", name)
    return {} if isinstance(found, Method) else accepted_arguments(found) or {}


def check_choice(option: str, value: str, known: Sequence[str]) -> None:
    """Raise ValueError unless the value of an option is known; `option` is the subject and verb of the message."""
    if value not in known:
        raise ValueError(f"{option} {', '.join(known[:-1])} or {known[-1]}, found {value!r}")

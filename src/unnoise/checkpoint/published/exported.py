"""A model of ours with the network ddit, seen from a published layout: what its configuration must say."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unnoise.checkpoint.published.ddit import HF_SIZES

SIGMA_EPS = 1e-3  # of the schedule whose σ is read


@dataclass(frozen=True)
class Exported:
    """A model of ours that is to be written in a layout.

    method, options: its name without options, and all of these. network: its configuration. length: the longest text. labels:
    how many classes.
    """

    method: str
    options: Mapping[str, Any]
    network: Mapping[str, Any]
    length: int
    labels: int

    @property
    def rows(self) -> int:
        """Of the embedding, as the layouts have it: tokens and symbols."""
        return self.network["inputs"]

    def check(self, layout: str, method: str, time_input: str | None = "loglinear", labels: bool = False) -> None:
        """ValueError unless it is of this method, with a network that reads time as the layout does (None: not at all), and
        without labels if the layout has none."""
        if self.method != method:
            raise ValueError(f"the layout {layout} is for the method {method}, and this is a model of {self.method}")
        if self.labels and not labels:
            raise ValueError(f"the layout {layout} has no labels, and this model has {self.labels}")
        found = self.network["time_input"] if self.network["time"] else None
        if found != time_input or (found == "loglinear" and self.network["sigma_eps"] != SIGMA_EPS):
            reads = "no time" if time_input is None else f"time as --network ddit:time_input={time_input} does"
            raise ValueError(f"the layout {layout} has a network that reads {reads}, and this one does not")
        if self.network["causal"] or self.network["hidden"] != 4 * self.network["width"]:
            raise ValueError(
                f"the layout {layout} has a network that sees both sides, with a perceptron of four times its width"
            )

    def hf_config(self, kind: str, name: str, code: str) -> dict[str, Any]:
        """What config.json of MDLM, BD3-LM, Duo and UDLM has in common. code: where their classes are, repository--file."""
        settings = code.replace("--modeling", "--configuration")
        return {
            "architectures": [name],
            "auto_map": {"AutoConfig": f"{settings}.{name}Config", "AutoModelForMaskedLM": f"{code}.{name}"},
            **{theirs: self.network[ours] for ours, theirs in HF_SIZES.items() if ours != "vocab"},
            **{"vocab_size": self.rows, "model_length": self.length, "n_heads": self.network["heads"]},
            **{"dropout": 0.1, "model_type": kind, "return_dict": False, "torch_dtype": "float32"},
        }

    def hydra_model(self) -> dict[str, Any]:
        """The section `model` of a training configuration."""
        return {
            **{"name": "small", "type": "ddit", "hidden_size": self.network["width"]},
            **{"cond_dim": self.network["cond_width"], "length": self.length, "n_blocks": self.network["depth"]},
            **{"n_heads": self.network["heads"], "dropout": 0.1},
        }

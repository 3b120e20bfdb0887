"""A model of ours with the network ddit, prepared for export in a published layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from unnoise.checkpoint.published.ddit_weights import HF_SIZES

SIGMA_EPS = 1e-3  # of the log-linear schedule whose σ is the network's input


@dataclass(frozen=True)
class Exported:
    """A model of ours to export.

    method, options: name of the method without settings, and all of its settings.
    network: configuration of the network.
    length: maximum length of a sequence.
    labels: number of classes.
    """

    method: str
    options: Mapping[str, Any]
    network: Mapping[str, Any]
    length: int
    labels: int

    @property
    def rows(self) -> int:
        """Number of embedding rows, for tokens and special symbols."""
        return self.network["inputs"]

    def check(self, layout: str, method: str, time_input: str | None = "loglinear", labels: bool = False) -> None:
        """Raise ValueError unless the model fits a layout.

        method: method that the layout is for.
        time_input: the network's time input in the layout; None means no time.
        labels: whether the layout has labels.
        """
        if self.method != method:
            raise ValueError(f"the layout {layout} is for the method {method}, and this is a model of {self.method}")
        if self.labels and not labels:
            raise ValueError(f"the layout {layout} has no labels, and this model has {self.labels}")
        found = self.network["time_input"] if self.network["time"] else None
        if found != time_input or (found == "loglinear" and self.network["sigma_eps"] != SIGMA_EPS):
            needed = "without time" if time_input is None else f"with --network ddit:time_input={time_input}"
            raise ValueError(f"the layout {layout} needs a network {needed}, and this one has time_input={found}")
        if self.network["causal"] or self.network["hidden"] != 4 * self.network["width"]:
            raise ValueError(f"the layout {layout} needs a bidirectional network with a perceptron of four times its width")

    def hf_config(self, kind: str, name: str, code: str) -> dict[str, Any]:
        """Return the part of config.json shared by MDLM, BD3-LM, Duo and UDLM.

        kind: the `model_type`.
        name: prefix of the layout's class names.
        code: repository and file of these classes, as repository--file.
        """
        settings = code.replace("--modeling", "--configuration")
        return {
            "architectures": [name],
            "auto_map": {"AutoConfig": f"{settings}.{name}Config", "AutoModelForMaskedLM": f"{code}.{name}"},
            **{theirs: self.network[ours] for ours, theirs in HF_SIZES.items() if ours != "vocab"},
            **{"vocab_size": self.rows, "model_length": self.length, "n_heads": self.network["heads"]},
            **{"dropout": 0.1, "model_type": kind, "return_dict": False, "torch_dtype": "float32"},
        }

    def hydra_model(self) -> dict[str, Any]:
        """Return the section `model` of a training configuration."""
        return {
            **{"name": "small", "type": "ddit", "hidden_size": self.network["width"]},
            **{"cond_dim": self.network["cond_width"], "length": self.length, "n_blocks": self.network["depth"]},
            **{"n_heads": self.network["heads"], "dropout": 0.1},
        }

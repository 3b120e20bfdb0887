"""MDLM (arXiv:2406.07524), as kuleshov-group/mdlm-owt has it: masked noise, no time (σ = 0), the mask the last row.

The output has a row for the mask too, to which SUBS gives no probability: here it is not computed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.ddit import Layout, ddit_reader, hf_sizes
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.fields import flag, whole

NAME, TYPE = "mdlm", "mdlm"


def layout(described: Mapping[str, Any], folder: Path) -> Layout:
    """What config.json says, or ValueError."""
    time = flag(described, "time_conditioning", False)
    return Layout(
        NAME,
        "mdlm:time=true" if time else "mdlm",
        whole(described, "model_length"),
        whole(described, "n_heads"),
        hf_sizes(described),
        special=1,
        own_mask=True,
    )


def described(model: Exported) -> dict[str, Any]:
    """What config.json must say of a model of ours, or ValueError."""
    model.check(NAME, "mdlm", "loglinear" if model.network["time"] else None)
    config = model.hf_config(TYPE, "MDLM", "kuleshov-group/mdlm-owt--modeling_mdlm")
    return config | {"time_conditioning": model.network["time"]}


READER = ddit_reader(TYPE, layout)

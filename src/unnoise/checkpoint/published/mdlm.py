"""MDLM (arXiv:2406.07524) in the layout of kuleshov-group/mdlm-owt: masked noise, no time (σ = 0), the mask in the last row.

The output also has a row for the mask. SUBS gives it no probability, and here it is not computed.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.ddit_weights import Layout, ddit_reader, hf_layout
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.reader import read_bool


def mdlm_layout(described: Mapping[str, Any], folder: Path) -> Layout:
    """Return the layout that config.json describes."""
    method = "mdlm:time=true" if read_bool(described, "time_conditioning") else "mdlm"
    return hf_layout(described, "mdlm", method, special=1, own_mask=True)


def mdlm_config(model: Exported) -> dict[str, Any]:
    """Return the config.json of a model of ours; raise ValueError if it does not fit the layout."""
    model.check("mdlm", "mdlm", "loglinear" if model.network["time"] else None)
    config = model.hf_config("mdlm", "MDLM", "kuleshov-group/mdlm-owt--modeling_mdlm")
    return config | {"time_conditioning": model.network["time"]}


MDLM_READER = ddit_reader("mdlm", mdlm_layout)

"""UDLM (arXiv:2412.10193) in the layout of kuleshov-group/udlm-lm1b: uniform noise over every row, optionally with classes.

Its loss has α = 1 − t, and the network's input is σ = −log(1 − (1 − 10⁻³)t). The last row of the labels means "no label".
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.ddit_weights import Layout, ddit_reader, hf_layout
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.reader import read_bool, read_int


def udlm_layout(described: Mapping[str, Any], folder: Path) -> Layout:
    """Return the layout that config.json describes."""
    if not read_bool(described, "time_conditioning", True):
        raise ValueError("its time_conditioning is false: models with uniform noise must be conditioned on time")
    labels = read_int(described, "cfg_num_classes") if read_bool(described, "cfg") else 0
    return hf_layout(described, "udlm", "udlm:eps=0.0", labels=labels)


def udlm_config(model: Exported) -> dict[str, Any]:
    """Return the config.json of a model of ours; raise ValueError if it does not fit the layout."""
    model.check("udlm", "udlm", labels=True)
    config = model.hf_config("udlm", "UDLM", "kuleshov-group/udlm-lm1b--modeling_udlm")
    return config | {"time_conditioning": True, "cfg": bool(model.labels), "cfg_num_classes": model.labels or -1}


UDLM_READER = ddit_reader("udlm", udlm_layout)

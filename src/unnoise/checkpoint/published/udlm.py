"""UDLM (arXiv:2412.10193), as kuleshov-group/udlm-lm1b has it: uniform noise over every row, and perhaps classes.

Its loss has α = 1 − t, and the network reads σ = −log(1 − (1 − 10⁻³)t). The last row of the labels is "no label".
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.ddit import Layout, ddit_reader, hf_sizes
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.fields import flag, whole

NAME, TYPE = "udlm", "udlm"


def layout(described: Mapping[str, Any], folder: Path) -> Layout:
    """What config.json says, or ValueError."""
    if not flag(described, "time_conditioning", True):
        raise ValueError("its time_conditioning is false: uniform noise is read with time")
    labels = whole(described, "cfg_num_classes") if flag(described, "cfg", False) else 0
    length, heads = whole(described, "model_length"), whole(described, "n_heads")
    return Layout(NAME, "udlm:eps=0.0", length, heads, hf_sizes(described), labels=labels)


def described(model: Exported) -> dict[str, Any]:
    """What config.json must say of a model of ours, or ValueError."""
    model.check(NAME, "udlm", labels=True)
    config = model.hf_config(TYPE, "UDLM", "kuleshov-group/udlm-lm1b--modeling_udlm")
    return config | {"time_conditioning": True, "cfg": bool(model.labels), "cfg_num_classes": model.labels or -1}


READER = ddit_reader(TYPE, layout)

"""Duo (arXiv:2506.10892) in the layout of s-sahoo/duo: uniform noise over every row, σ = −log α as input, α = 1 − (1 − 10⁻³)t.

Duo differs from UDLM only in its training. Its model, bound and reverse step are those of the method `udlm`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.ddit_weights import Layout, ddit_reader, hf_layout
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.reader import read_bool


def duo_layout(described: Mapping[str, Any], folder: Path) -> Layout:
    """Return the layout that config.json describes."""
    if read_bool(described, "causal"):
        raise ValueError("it is causal, but the network of Duo is bidirectional")
    return hf_layout(described, "duo", "udlm")


def duo_config(model: Exported) -> dict[str, Any]:
    """Return the config.json of a model of ours; raise ValueError if it does not fit the layout."""
    model.check("duo", "udlm")
    return model.hf_config("DUO", "DUO", "s-sahoo/duo--model") | {"causal": False, "var_min": True}


DUO_READER = ddit_reader("DUO", duo_layout)

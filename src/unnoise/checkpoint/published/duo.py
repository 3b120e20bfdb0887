"""Duo (arXiv:2506.10892), as s-sahoo/duo has it: uniform noise over every row, σ = −log α read, α = 1 − (1 − 10⁻³)t.

Duo differs from UDLM in how it is trained; what it is, its bound and its reverse step, is that of the method `udlm`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.ddit import Layout, ddit_reader, hf_sizes
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.fields import flag, whole

NAME, TYPE = "duo", "DUO"


def layout(described: Mapping[str, Any], folder: Path) -> Layout:
    """What config.json says, or ValueError."""
    if flag(described, "causal", False):
        raise ValueError("it is causal: a Duo's network sees both sides")
    return Layout(NAME, "udlm", whole(described, "model_length"), whole(described, "n_heads"), hf_sizes(described))


def described(model: Exported) -> dict[str, Any]:
    """What config.json must say of a model of ours, or ValueError."""
    model.check(NAME, "udlm")
    return model.hf_config(TYPE, "DUO", "s-sahoo/duo--model") | {"causal": False, "var_min": True}


READER = ddit_reader(TYPE, layout)

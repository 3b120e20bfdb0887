"""BD3-LM (arXiv:2503.09573), as kuleshov-group/bd3lm-owt-block_size4 has it: masked noise in blocks, no time (σ = 0).

Its network reads x_t ⊕ x_0 with the positions twice, as ours does with `block`; in sampling it reads clean blocks once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.ddit import Layout, ddit_reader, hf_sizes
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.fields import flag, whole

NAME, TYPE = "bd3lm", "bd3lm"
SAMPLING = (1e-3, 0.999)  # between which its training drew t, in the file as two numbers
REQUIRED = {"causal": False, "cross_attn": True, "adaln": True, "time_conditioning": False}


def layout(described: Mapping[str, Any], folder: Path) -> Layout:
    """What config.json says, or ValueError."""
    for name, value in REQUIRED.items():
        if flag(described, name, value) is not value:
            raise ValueError(f"its {name} is {str(not value).lower()}: only BD3-LMs with {str(value).lower()} are read")
    block, length = whole(described, "block_size"), whole(described, "model_length")
    if block > length:
        raise ValueError(f"its block_size {block} is larger than its model_length {length}")
    return Layout(
        NAME, f"bd3lm:block={block}", length, whole(described, "n_heads"), hf_sizes(described), special=1, own_mask=True
    )


def described(model: Exported) -> dict[str, Any]:
    """What config.json must say of a model of ours, or ValueError."""
    model.check(NAME, "bd3lm", None)
    config = model.hf_config(TYPE, "BD3LM", "kuleshov-group/bd3lm-owt-block_size4--modeling_bd3lm")
    sampling = {"attn_backend": "sdpa", "var_min": True, "sampling_eps_min": SAMPLING[0], "sampling_eps_max": SAMPLING[1]}
    return config | REQUIRED | sampling | {"block_size": model.options["block"]}


READER = ddit_reader(TYPE, layout)

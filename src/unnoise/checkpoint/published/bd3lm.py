"""BD3-LM (arXiv:2503.09573) in the layout of kuleshov-group/bd3lm-owt-block_size4: masked noise in blocks, no time (σ = 0).

Its network reads x_t ⊕ x_0 with every position twice, as ours does with `block`. Sampling reads clean blocks once.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.ddit_weights import Layout, ddit_reader, hf_layout
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.reader import read_bool, read_int

BD3LM_SAMPLING = {"sampling_eps_min": 1e-3, "sampling_eps_max": 0.999}  # bounds of t in training
BD3LM_FIELDS = {"causal": False, "cross_attn": True, "adaln": True, "time_conditioning": False}


def bd3lm_layout(described: Mapping[str, Any], folder: Path) -> Layout:
    """Return the layout that config.json describes."""
    for name, value in BD3LM_FIELDS.items():
        if read_bool(described, name, value) is not value:
            raise ValueError(f"its {name} is {str(not value).lower()}: only BD3-LMs with {str(value).lower()} are supported")
    block = read_int(described, "block_size")
    layout = hf_layout(described, "bd3lm", f"bd3lm:block={block}", special=1, own_mask=True)
    if block > layout.length:
        raise ValueError(f"its block_size {block} is larger than its model_length {layout.length}")
    return layout


def bd3lm_config(model: Exported) -> dict[str, Any]:
    """Return the config.json of a model of ours; raise ValueError if it does not fit the layout."""
    model.check("bd3lm", "bd3lm", None)
    config = model.hf_config("bd3lm", "BD3LM", "kuleshov-group/bd3lm-owt-block_size4--modeling_bd3lm")
    fields = {"attn_backend": "sdpa", "var_min": True, "block_size": model.options["block"]}
    return config | BD3LM_FIELDS | BD3LM_SAMPLING | fields


BD3LM_READER = ddit_reader("bd3lm", bd3lm_layout)

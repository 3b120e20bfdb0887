"""GIDD (arXiv:2503.04482) in the layout of dvruette/gidd-base-p_unif-0.1: masks and uniform noise together, t as input.

The mask is the token [MASK] of the tokenizer, or the last of vocab_size without one. Newer checkpoints round the number of rows
up; the rows after the mask are unused.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.ddit_weights import Layout, ddit_reader
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.reader import read_int, read_number
from unnoise.checkpoint.published.tokenizer_files import MASK, find_tokenizer

GIDD_SIZES = {
    **{"vocab": "vocab_size", "width": "hidden_size"},
    **{"depth": "num_hidden_layers", "cond_width": "timestep_cond_dim"},
}


def gidd_layout(described: Mapping[str, Any], folder: Path) -> Layout:
    """Return the layout that config.json describes."""
    share = read_number(described, "p_uniform") if described.get("p_uniform") not in (0, None) else 0.0
    if share >= 1:
        raise ValueError(f"its p_uniform must be below 1, found {share}")
    sizes = {ours: read_int(described, theirs) for ours, theirs in GIDD_SIZES.items()}
    tokenizer = find_tokenizer(folder)
    mask = tokenizer.token_to_id(MASK) if tokenizer is not None else None
    return Layout(
        layout="gidd",
        method=f"gidd:p_uniform={share!r}",
        length=read_int(described, "max_seq_len"),
        heads=read_int(described, "num_attention_heads"),
        sizes=sizes,
        special=1,
        tokens=sizes["vocab"] - 1 if mask is None else mask,
        rounded=128,
        time_fields={"time_input": "t"},
    )


def gidd_config(model: Exported) -> dict[str, Any]:
    """Return the config.json of a model of ours; raise ValueError if it does not fit the layout."""
    model.check("gidd", "gidd", "t")
    code = "dvruette/gidd-small-p_unif-0.0--"
    return {
        "architectures": ["DIT"],
        "auto_map": {"AutoConfig": f"{code}configuration_dit.DITConfig", "AutoModelForMaskedLM": f"{code}modeling_dit.DIT"},
        **{theirs: model.network[ours] for ours, theirs in GIDD_SIZES.items() if ours != "vocab"},
        **{"vocab_size": model.rows, "max_seq_len": model.length, "num_attention_heads": model.network["heads"]},
        **{"attention_dropout": 0.0, "model_type": "dit", "p_uniform": model.options["p_uniform"], "t_eps": 1e-4},
        "torch_dtype": "float32",
    }


GIDD_READER = ddit_reader("dit", gidd_layout)

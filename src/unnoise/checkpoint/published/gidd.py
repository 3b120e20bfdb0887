"""GIDD (arXiv:2503.04482), as dvruette/gidd-base-p_unif-0.1 has it: masks and uniform noise at once; the network reads t.

The mask is the token [MASK] of the tokenizer, and without one the last of vocab_size. Rows behind it, to which newer
checkpoints are rounded up, stand for nothing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.beside import MASK, tokenizer_beside
from unnoise.checkpoint.published.ddit import Layout, ddit_reader
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.fields import number, whole

NAME, TYPE = "gidd", "dit"
SIZES = {
    **{"vocab": "vocab_size", "width": "hidden_size"},
    **{"depth": "num_hidden_layers", "cond_width": "timestep_cond_dim"},
}


def layout(described: Mapping[str, Any], folder: Path) -> Layout:
    """What config.json says, or ValueError."""
    share = number(described, "p_uniform") if described.get("p_uniform") not in (0, None) else 0.0
    if share >= 1:
        raise ValueError(f"its p_uniform must be a share below 1, found {share}")
    sizes = {ours: whole(described, theirs) for ours, theirs in SIZES.items()}
    tokenizer = tokenizer_beside(folder)
    mask = tokenizer.token_to_id(MASK) if tokenizer is not None else None
    return Layout(
        NAME,
        f"gidd:p_uniform={share!r}",
        whole(described, "max_seq_len"),
        whole(described, "num_attention_heads"),
        sizes,
        special=1,
        tokens=sizes["vocab"] - 1 if mask is None else mask,
        rounded=128,
        reads={"time_input": "t"},
    )


def described(model: Exported) -> dict[str, Any]:
    """What config.json must say of a model of ours, or ValueError."""
    model.check(NAME, "gidd", "t")
    code = "dvruette/gidd-small-p_unif-0.0--"
    return {
        "architectures": ["DIT"],
        "auto_map": {"AutoConfig": f"{code}configuration_dit.DITConfig", "AutoModelForMaskedLM": f"{code}modeling_dit.DIT"},
        **{theirs: model.network[ours] for ours, theirs in SIZES.items() if ours != "vocab"},
        **{"vocab_size": model.rows, "max_seq_len": model.length, "num_attention_heads": model.network["heads"]},
        **{"attention_dropout": 0.0, "model_type": TYPE, "p_uniform": model.options["p_uniform"], "t_eps": 1e-4},
        "torch_dtype": "float32",
    }


READER = ddit_reader(TYPE, layout)

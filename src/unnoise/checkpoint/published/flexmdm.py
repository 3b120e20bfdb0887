"""Flex-MDM (arXiv:2509.01025) in the layout of its training code: a second head for gaps, and time from noise to data.

The configuration describes the training run. Padding and mask are the last two rows of the embedding.
"""

from collections.abc import Mapping
from typing import Any

from unnoise.checkpoint.published.ddit_weights import Layout, hydra_sizes, section
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.reader import read_int

FLEXMDM_TRAINER = "any-order-flow"


def is_flexmdm(described: Mapping[str, Any]) -> bool:
    """Return whether a training configuration belongs to Flex-MDM."""
    return described.get("trainer") == FLEXMDM_TRAINER or "interpolant" in described


def flexmdm_layout(described: Mapping[str, Any]) -> Layout:
    """Return the layout that a training configuration describes."""
    model, noise = section(described, "model"), section(described, "interpolant")
    if noise.get("type") != "any-order":
        raise ValueError(f"its interpolant must be any-order, found {noise.get('type')!r}")
    for name in ("insert_schedule", "unmask_schedule"):
        kind = section(noise, name).get("type")
        if kind != "linear":
            raise ValueError(f"its {name} must be linear, found {kind!r}")
    rows, padding, mask = (read_int(noise, name) for name in ("tokens", "pad_token", "mask_token"))
    if {padding, mask} != {rows - 2, rows - 1}:
        raise ValueError(f"its padding and mask are tokens {padding} and {mask}, not the last two of {rows}")
    return Layout(
        layout="flexmdm",
        method="flexmdm:layout=end",
        length=read_int(noise, "max_length"),
        heads=read_int(model, "n_heads"),
        sizes=hydra_sizes(model) | {"vocab": rows},
        special=2,
        time_fields={"time_input": "1-t"},
        gaps=True,
        swapped=padding > mask,
    )


def flexmdm_config(model: Exported) -> dict[str, Any]:
    """Return the configuration of a model of ours; raise ValueError if it does not fit the layout."""
    if model.method == "flexmdm" and model.options["layout"] != "end":
        raise ValueError("the layout flexmdm is for models of flexmdm:layout=end: train with that method")
    model.check("flexmdm", "flexmdm", "1-t")
    rows = model.rows
    return {
        **{"trainer": FLEXMDM_TRAINER, "dataset": "openwebtext", "model": model.hydra_model()},
        "interpolant": {
            **{"type": "any-order", "tokens": rows, "pad_token": rows - 2, "mask_token": rows - 1},
            **{"max_length": model.length, "insert_schedule": {"type": "linear"}, "unmask_schedule": {"type": "linear"}},
        },
        "training": {"only_embed_insert": True, "loss_fn": {"unmask": "elbo", "insert": "expectation"}, "ema_decay": 0.9999},
    }

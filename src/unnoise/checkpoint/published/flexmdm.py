"""Flex-MDM (arXiv:2509.01025), as its own code trains it: a second head for gaps, and time counted from noise to data.

The configuration is a training one. Padding and mask are the last two rows of the embedding.
"""

from collections.abc import Mapping
from typing import Any

from unnoise.checkpoint.published.ddit import Layout, hydra_sizes, section
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.fields import whole

NAME, TRAINER = "flexmdm", "any-order-flow"


def recognised(described: Mapping[str, Any]) -> bool:
    """Whether a configuration is one of Flex-MDM."""
    return described.get("trainer") == TRAINER or "interpolant" in described


def layout(described: Mapping[str, Any]) -> Layout:
    """What the configuration says, or ValueError."""
    model, noise = section(described, "model"), section(described, "interpolant")
    if noise.get("type") != "any-order":
        raise ValueError(f"its interpolant is {noise.get('type')!r}; any-order is read")
    for name in ("insert_schedule", "unmask_schedule"):
        kind = section(noise, name).get("type")
        if kind != "linear":
            raise ValueError(f"its {name} is {kind!r}; linear is read")
    rows, padding, mask = whole(noise, "tokens"), whole(noise, "pad_token"), whole(noise, "mask_token")
    if {padding, mask} != {rows - 2, rows - 1}:
        raise ValueError(f"its padding and mask are tokens {padding} and {mask}, not the last two of {rows}")
    return Layout(
        NAME,
        "flexmdm:layout=end",
        whole(noise, "max_length"),
        whole(model, "n_heads"),
        hydra_sizes(model) | {"vocab": rows},
        special=2,
        reads={"time_input": "1-t"},
        gaps=True,
        swapped=padding > mask,
    )


def described(model: Exported) -> dict[str, Any]:
    """What the configuration must say of a model of ours, or ValueError."""
    if model.method == NAME and model.options["layout"] != "end":
        raise ValueError("the layout flexmdm is for models of flexmdm:layout=end: train it so")
    model.check(NAME, NAME, "1-t")
    rows = model.rows
    return {
        **{"trainer": TRAINER, "dataset": "openwebtext", "model": model.hydra_model()},
        "interpolant": {
            **{"type": "any-order", "tokens": rows, "pad_token": rows - 2, "mask_token": rows - 1},
            **{"max_length": model.length, "insert_schedule": {"type": "linear"}, "unmask_schedule": {"type": "linear"}},
        },
        "training": {"only_embed_insert": True, "loss_fn": {"unmask": "elbo", "insert": "expectation"}, "ema_decay": 0.9999},
    }

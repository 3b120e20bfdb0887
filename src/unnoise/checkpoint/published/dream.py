"""Dream (arXiv:2508.15487): Qwen2.5 without its causal mask, in the layout of Dream-org/Dream-v0-* and apple/DiffuCoder-7B-*.

Row i − 1 predicts position i, as in the model that it began as; position 0 is never masked in training.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.folder import tensor_names
from unnoise.checkpoint.published.huggingface import network_config
from unnoise.checkpoint.published.masked_decoder import MASKED, masked_model
from unnoise.checkpoint.published.reader import Choices, Published, Reader, of_type


def read_dream(folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """The model in a folder, or ValueError."""
    config = network_config(described, tensor_names(folder), causal=False) | {"shift": True}
    return masked_model("Dream", folder, described, choices, config, MASKED, usual_mask=151_666)


READER = Reader(("Dream",), of_type("Dream"), read_dream)

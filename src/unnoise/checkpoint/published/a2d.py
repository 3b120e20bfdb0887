"""Tiny-A2D: Qwen3 made a diffusion model, in the layout of dllm-hub/Qwen3-0.6B-diffusion-{mdlm,bd3lm}-v0.1.

Their configurations name neither the mask (the last token of the tokenizer, `<|mask|>`) nor the size of the blocks: a name with
bd3lm in it is block diffusion.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.fields import whole
from unnoise.checkpoint.published.folder import tensor_names
from unnoise.checkpoint.published.huggingface import network_config
from unnoise.checkpoint.published.masked_decoder import MASKED, masked_model
from unnoise.checkpoint.published.reader import Choices, Published, Reader, of_type

NAMED = re.compile("bd3lm")
BLOCK = 32  # which they are trained with
TYPES = ("a2d-qwen3", "a2d-qwen2", "a2d-llama")


def read_a2d(folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """The model in a folder, or ValueError."""
    config = network_config(described, tensor_names(folder), causal=False)
    blocks = "block_size" in described or NAMED.search(choices.name) is not None
    method = f"bd3lm:block={whole(described, 'block_size', BLOCK)}" if blocks else MASKED
    return masked_model("A2D", folder, described, choices, config, method, usual_mask=151_669)


READER = Reader(TYPES, of_type(*TYPES), read_a2d)

"""SDAR (arXiv:2510.06303): Qwen3 made a block diffusion model, in the layout of JetLM/SDAR-{1.7B,4B,8B}-Chat[-b8…-b64].

Same-position logits. The size of the blocks is in the name, where it is not 4.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.fields import whole
from unnoise.checkpoint.published.folder import tensor_names
from unnoise.checkpoint.published.huggingface import network_config
from unnoise.checkpoint.published.masked_decoder import masked_model
from unnoise.checkpoint.published.reader import Choices, Published, Reader, of_type

BLOCK = 4
NAMED = re.compile(r"-b(\d{1,4})(?!\w)")


def read_sdar(folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """The model in a folder, or ValueError."""
    config = network_config(described, tensor_names(folder), causal=False)
    named = NAMED.search(choices.name)
    block = whole(described, "block_size", int(named[1]) if named else BLOCK)
    return masked_model("SDAR", folder, described, choices, config, f"bd3lm:block={block}", usual_mask=151_669)


READER = Reader(("sdar",), of_type("sdar"), read_sdar)

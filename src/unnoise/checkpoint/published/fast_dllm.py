"""Fast-dLLM v2 (arXiv:2509.26328): Qwen2.5 made a block diffusion model, in the layout of Efficient-Large-Model/Fast_dLLM_v2_*.

Row i − 1 predicts position i; the first token of a block is predicted by the clean row before it. The published blocks have
32 tokens, which it writes in smaller parts; here a block is written as one.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.fields import whole
from unnoise.checkpoint.published.folder import tensor_names
from unnoise.checkpoint.published.huggingface import network_config
from unnoise.checkpoint.published.masked_decoder import masked_model
from unnoise.checkpoint.published.reader import Choices, Published, Reader, of_type

BLOCK = 32


def read_fast_dllm(folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """The model in a folder, or ValueError."""
    config = network_config(described, tensor_names(folder), causal=False) | {"shift": True}
    method = f"bd3lm:block={whole(described, 'bd_size', BLOCK)}"
    return masked_model("Fast-dLLM v2", folder, described, choices, config, method, usual_mask=151_665)


READER = Reader(("Fast_dLLM_Qwen",), of_type("Fast_dLLM_Qwen"), read_fast_dllm)

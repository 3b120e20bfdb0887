"""Diffusion models whose network is a decoder of the Llama type, in 🤗 folders: what their readers share.

All V rows of the embedding are tokens, the mask among them, as they are in the models' own softmax: K = V, and our mask, state
K, is embedded as that token (`mask_token` of the network). Texts are written and read whole.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from unnoise.checkpoint.published.decoder import Names, Tensors, our_weights
from unnoise.checkpoint.published.fields import token
from unnoise.checkpoint.published.folder import codec_of, special_token, tokenizer_of
from unnoise.checkpoint.published.huggingface import NAMES, without_copies
from unnoise.checkpoint.published.reader import Choices, Published

MASKED = "mdlm:eps=0"  # the linear schedule, weight 1/t
LONGEST = 4096  # tokens, of what such a model can read: a text is read as a whole at every step
MASKS = ("<|mdm_mask|>", "<|mask|>", "<|MASK|>", "|<MASK>|", "[MASK]", "<mask>")  # what tokenizers call it


def masked_model(
    family: str,
    folder: Path,
    described: Mapping[str, Any],
    choices: Choices,
    config: dict[str, Any],
    method: str,
    names: Names = NAMES,
    usual_mask: int | None = None,
) -> Published:
    """The model of a folder. usual_mask: the mask of the published ones, where neither configuration nor tokenizer name it."""
    vocab = config["outputs"]
    tokenizer = tokenizer_of(folder)
    mask = choices.mask_token
    if mask is None:
        mask = token(described, "mask_token_id", vocab)
    if mask is None:
        mask = _named_mask(folder, tokenizer)
    if mask is None and usual_mask is not None and usual_mask < vocab:
        mask = usual_mask
    guess = ""
    if mask is None:
        mask = vocab - 1
        guess = f"nothing names the mask token, so that token {mask} is taken for it: give it as mask_token"
    length = min(config["length"], LONGEST)
    config = config | {"inputs": vocab + 1, "causal": False, "length": length, "mask_token": mask}
    return Published(
        family,
        choices.method or method,
        "llama",
        config,
        codec_of(tokenizer, vocab, token(described, "eos_token_id", vocab)),
        length,
        lambda: our_weights(Tensors(without_copies(folder, names, config)), names, config),
        guess,
    )


def _named_mask(folder: Path, tokenizer: Tokenizer | None) -> int | None:
    """The mask by its name in the tokenizer, if it has one."""
    if tokenizer is None:
        return None
    found = special_token(folder, tokenizer, "mask_token")
    named = (tokenizer.token_to_id(name) for name in MASKS)
    return found if found is not None else next((number for number in named if number is not None), None)

"""MAUVE of generated texts against real texts (arXiv:2102.01454), from hidden states of the judge. Needs mauve-text.

The features of a text are the judge's last hidden state at the last token, the input of the output head. Papers use GPT-2 large
as judge: compare results only for the same judge and the same number of texts.
"""

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unnoise.families.autoregressive import next_token_denoiser
from unnoise.model.model import Model
from unnoise.network.transformer import normalise

FEWEST = 20  # texts of each kind, as the package uses one cluster for ten texts


def can_mauve() -> bool:
    """Return whether mauve-text is installed."""
    return importlib.util.find_spec("mauve") is not None


@torch.no_grad()
def features(judge: Model, texts: Sequence[str]) -> np.ndarray:
    """Return the judge's hidden state at the last token of each text, cut to the judge's length: [N, W] float32."""
    network = judge.network.eval()
    parts = dict(network.named_children())
    blocks = parts.get("blocks")
    if not isinstance(blocks, nn.ModuleList):
        raise ValueError("MAUVE needs the hidden states of a judge with blocks, such as the networks of this package")
    states: list[Tensor] = []
    reader = next_token_denoiser(judge.denoiser, "MAUVE")
    handle = blocks[-1].register_forward_hook(lambda module, inputs, output: states.append(output[:, -1]))
    try:
        for text in texts:
            tokens = torch.from_numpy(judge.codec.encode(text)[: judge.length - 1])[None].to(judge.device)
            start = torch.full_like(tokens[:, :1], judge.process.vocab)
            reader.next_token(torch.cat([start, tokens], 1), None)
    finally:
        handle.remove()
    norm = parts.get("norm", normalise)
    return norm(torch.cat(states)).float().cpu().numpy()


def mauve(written: np.ndarray, real: np.ndarray) -> float:
    """Return MAUVE of the features of generated and real texts, with the defaults of the package."""
    count = min(len(written), len(real))
    if count < FEWEST:
        raise ValueError(f"MAUVE compares clusters of texts and needs at least {FEWEST} of each kind, found {count}")
    package: Any = importlib.import_module("mauve")
    return float(package.compute_mauve(p_features=real[:count], q_features=written[:count], verbose=False).mauve)

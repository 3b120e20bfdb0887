"""MAUVE of written texts against real ones (arXiv:2102.01454), from the judge's own hidden states; needs mauve-text.

A text's features are the judge's last hidden state at its last token, as the output head reads it. Papers take those of GPT-2
large: figures are compared only where the judge and the number of texts are the same.
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

FEWEST = 20  # texts of each kind; the package makes a cluster for every ten


def can_mauve() -> bool:
    """Whether MAUVE can be computed: the package mauve-text is there."""
    return importlib.util.find_spec("mauve") is not None


@torch.no_grad()
def features(judge: Model, texts: Sequence[str]) -> np.ndarray:
    """The judge's hidden state at the last token of each text, of a long one at the last that it reads: [N, W] float32."""
    network = judge.network.eval()
    parts = dict(network.named_children())
    blocks = parts.get("blocks")
    if not isinstance(blocks, nn.ModuleList):
        raise ValueError("MAUVE reads the hidden states of a judge that has blocks, as the networks of this package have")
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
    """MAUVE of the features of written texts against those of as many real ones, by the package's defaults."""
    count = min(len(written), len(real))
    if count < FEWEST:
        raise ValueError(f"MAUVE compares clusters of texts and needs at least {FEWEST} of each kind, found {count}")
    package: Any = importlib.import_module("mauve")
    return float(package.compute_mauve(p_features=real[:count], q_features=written[:count], verbose=False).mauve)

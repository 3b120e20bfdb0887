"""A network, a codec, a sampler and a method defined outside the package.

    UNNOISE_PLUGINS=examples/own_parts.py unnoise train mdlm-polynomial --network gru:width=96 --codec words-500 --steps 200
    UNNOISE_PLUGINS=examples/own_parts.py unnoise generate --sampler left-first:backwards=true

Registered parts work in the trainer, in saved models, in the command line and in the studio, like the built-in ones.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import unnoise
from unnoise.rng import draw
from unnoise.sampler.sampler_base import SteppedSampler
from unnoise.sampler.unmasking import MaskedSampler


@unnoise.register("network", "gru")
class Gru(nn.Module):
    """Bidirectional GRU, x [B, L] → [B, L, outputs], without time conditioning.

    `config` holds the arguments that rebuild it. The method and the codec set `inputs` and `outputs`.
    """

    def __init__(self, inputs: int, outputs: int, width: int = 64):
        super().__init__()
        self.config = {"inputs": inputs, "outputs": outputs, "width": width}
        self.embed = nn.Embedding(inputs, width)
        self.mix = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * width, outputs)

    def forward(self, x: Tensor, t: Tensor | None = None, where: Tensor | None = None) -> Tensor:
        hidden = self.mix(self.embed(x))[0]
        return self.head(hidden if where is None else hidden[where])  # the output layer runs at the requested positions only


@unnoise.register("codec", "words")
class WordCodec(unnoise.Codec):
    """One token per word: the most frequent words, and one token for all others."""

    kind = "words"
    unknown = "?"

    def __init__(self, words: Sequence[str], end: bool = False):
        self.words = list(words)
        self.vocab = len(self.words) + end
        self.eos = len(self.words) if end else None
        self.number = {word: i for i, word in enumerate(self.words)}

    @classmethod
    def build(cls, texts: Iterable[str] | None = None, end: bool = False, detail: str = "") -> "WordCodec":
        """Build from training texts; `words-500` keeps the 500 most frequent words."""
        counts = Counter(word for text in texts or () for word in text.split())
        most = int(detail or 1000)
        return WordCodec([cls.unknown, *(word for word, _ in counts.most_common(most - 1) if word != cls.unknown)], end)

    def encode(self, text: str, strict: bool = False) -> np.ndarray:
        return np.array([self.number.get(word, 0) for word in text.split()], dtype=np.int64)

    def decode(self, tokens: Sequence[int] | np.ndarray) -> str:
        return " ".join(self.words[token] for token in self.until_end(tokens))

    def show(self, token: int) -> str:
        return "¶" if token == self.eos else f"{self.words[token]} "

    def config(self) -> dict[str, Any]:
        return {"words": self.words, "end": self.eos is not None}

    @classmethod
    def from_config(cls, config: dict[str, Any], folder: Path) -> "WordCodec":
        return WordCodec(**config)


@unnoise.register("sampler", "left-first")
@dataclass(frozen=True)
class LeftFirst(MaskedSampler, SteppedSampler):
    """Masked processes: reveal the masks from left to right, a few per step.

    backwards: reveal from right to left.
    """

    backwards: bool = False

    def frames(
        self, denoiser: unnoise.SamplingDenoiser, x: Tensor, free: Tensor, generator: torch.Generator
    ) -> Iterator[unnoise.Frame]:
        process = denoiser.process
        confidence = torch.zeros(x.shape, device=x.device)
        total = (process.active(x) & free).sum(1)
        for i in range(1, self.steps + 1):
            masks = process.active(x) & free
            keep = total * (self.steps - i) // self.steps
            order = masks.flip(1).cumsum(1).flip(1) if not self.backwards else masks.cumsum(1)  # rank 1 moves last
            moving = masks & (order > keep[:, None])
            if moving.any():
                t = process.schedule.inverse(1 - masks.sum(1).double() / total.clamp_min(1))
                log_p = denoiser.clean(x, t, moving)
                x = x.masked_scatter(moving, draw(log_p.double().exp(), generator, moving))
                confidence = denoiser.confidence(x, confidence)
            yield unnoise.Frame(1 - i / self.steps, x, confidence)


unnoise.register("method", "mdlm-polynomial")(
    unnoise.Method(
        title="MDLM with a quadratic schedule, which masks most tokens late",
        paper="after Sahoo et al. 2024, arXiv:2406.07524",
        process=lambda vocab: unnoise.Masked(vocab, unnoise.Polynomial(2.0)),
        parameterization=unnoise.MeanParameterization,
        objective=unnoise.Elbo,
        bound=unnoise.Elbo,
        sampler=LeftFirst(),
        time_free=True,
    )
)

"""Sampling block by block, each with a sampler of masked diffusion."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, SamplingDenoiser
from unnoise.families.block import BlockDenoiser, BlockParameterization, BlockPrediction, Blocks, block_denoiser
from unnoise.network.attention import KVCache
from unnoise.prediction import MeanPrediction, Prediction
from unnoise.process.state import ProcessBase
from unnoise.rng import Generator, RowGenerator
from unnoise.sampler.ancestral import Ancestral
from unnoise.sampler.sampler_base import MOST_STEPS, Frame, Sampler
from unnoise.sampler.unmasking import FirstHitting


@dataclass(frozen=True)
class BlockSampler(Sampler):
    """Sampling of blocks from left to right, with finished blocks in a KV cache (arXiv:2503.09573).

    steps: maximum number of network calls, without the one that caches each finished block; by default one per token.
    inner: sampler of a block; by default first-hitting, or ancestral if there are fewer calls than tokens.
    cache: whether finished blocks are cached; otherwise each call evaluates the whole sequence, with the same result.

    With one call per token samples follow the model's distribution exactly, and with fewer calls as steps grow, unless `inner`
    is set. A sequence stops at its EOS token. Tokens that are given after a block cannot influence it; models trained with
    whole sequences then sample the sequence as one block.
    """

    requires: ClassVar[str] = "block diffusion (bd3lm)"
    steps: int | None = None
    inner: Sampler | None = None
    cache: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.steps is not None and not 1 <= self.steps <= MOST_STEPS:
            raise ValueError(f"steps must be a whole number ≥ 1 (and ≤ {MOST_STEPS:,}), found {self.steps!r}")
        if self.inner is not None and not self.inner.serves(Blocks(1), MeanPrediction):
            raise ValueError(f"inner must be a sampler of masked diffusion, found {type(self.inner).__name__}")

    @property
    def keeps_distribution(self) -> bool:
        return self.inner is None or self.inner.keeps_distribution

    @property
    def distribution(self) -> str:
        if self.inner is not None:
            return self.inner.distribution
        exactly = "keeps the model's distribution exactly"
        return exactly if self.steps is None else f"{exactly} with a call for each token, and as steps grow with fewer"

    def with_nfe(self, nfe: int) -> Self:
        return replace(self, steps=nfe)

    def tokens_read(self, length: int) -> int:
        return min(length, 32)

    def serves(self, process: ProcessBase, prediction: type[Prediction] = BlockPrediction) -> bool:
        return isinstance(process, Blocks) and issubclass(prediction, BlockPrediction)

    def of_block(self, tokens: int, calls: int | None) -> Sampler:
        """Return the sampler of a block, given its number of tokens and calls."""
        if self.inner is not None:
            return self.inner if calls is None else self.inner.with_nfe(calls)
        return FirstHitting() if calls is None or calls >= tokens else Ancestral(calls)

    def frames(self, denoiser: SamplingDenoiser, x: Tensor, free: Tensor, generator: Generator) -> Iterator[Frame]:
        process = denoiser.process
        assert isinstance(process, Blocks)
        size, length = process.block, x.shape[1]
        number = -(-length // size)
        written = [bool(free[:, k * size : (k + 1) * size].any()) for k in range(number)]
        first = written.index(True) if True in written else number
        given_later = not bool(free[:, (first + 1) * size :].all())
        if length <= size or (given_later and process.whole_text):
            yield from self.of_block(length, self.steps).frames(denoiser, x, free, generator)
            return
        calls = None  # one per token
        if self.steps is not None and self.steps < int(free.sum(1).max()):
            calls = max(1, self.steps // sum(written))
        text = _Text(denoiser, x, self.cache, size)
        for k in range(number):
            here = slice(k * size, min((k + 1) * size, length))
            if written[k]:
                sampler = self.of_block(here.stop - here.start, calls)
                for frame in text.frames(sampler, k, here, free, generator, self.temperature, self.top_p):
                    if frame.t == 0 and not given_later:
                        text.stop_at(process.end, here, free)
                    settled = here.start if frame.t else here.stop
                    yield frame._replace(t=1 - (k + 1 - frame.t) / number, x=text.x, settled=settled)
            if not len(text.alive):
                break
            if k < number - 1:
                text.keep(here)
        if not written[-1] or not len(text.alive):
            yield Frame(0.0, text.x, text.confidence, settled=length)


class _Text:
    """Sequences during sampling: x, confidence [B, L]; alive: rows that have not ended, [n]."""

    def __init__(self, denoiser: SamplingDenoiser, x: Tensor, cache: bool, size: int):
        self.denoiser, self.x, self.size = denoiser, x, size
        self.confidence = torch.zeros(x.shape, device=x.device)
        self.alive = torch.arange(len(x), device=x.device)
        self.network = block_denoiser(denoiser.denoiser, "BlockSampler")
        kept = cache and isinstance(self.network, BlockParameterization) and self.network.has_cache
        self.cache = KVCache() if kept else None

    def frames(
        self,
        sampler: Sampler,
        k: int,
        here: slice,
        free: Tensor,
        generator: Generator,
        temperature: float,
        top_p: float,
    ) -> Iterator[Frame]:
        """Yield the states while block k, the positions `here`, is sampled."""
        outer, alive = self.denoiser, self.alive
        calls = SamplingDenoiser(
            outer.process,
            outer.process,
            self._of_block(here),
            here.stop - here.start,
            temperature=temperature,
            top_p=top_p,
            track_confidence=outer.track_confidence,
            mean_for=type(sampler).__name__,
        )
        own = generator.fork(k, alive) if isinstance(generator, RowGenerator) else generator
        x, confidence = self.x, self.confidence
        for frame in sampler.frames(calls, x[alive, here], free[alive, here], own):
            x, confidence = x.clone(), confidence.clone()
            x[alive, here], confidence[alive, here] = frame.x, frame.confidence
            self.x, self.confidence = x, confidence
            yield Frame(frame.t, x, confidence)
        outer.nfe += calls.nfe

    def _of_block(self, here: slice) -> Denoiser:
        if self.cache is not None and isinstance(self.network, BlockParameterization):
            return self.network.within(self.cache)
        return _reading_all(self.network, self.x[self.alive, : here.start], self.size)

    def stop_at(self, end: int | None, here: slice, free: Tensor) -> None:
        """Stop sequences in which this block sampled EOS, and fill their free positions with EOS."""
        if end is None:
            return
        written = (self.x == end) & free
        ended = written[self.alive, here].any(1)
        if not bool(ended.any()):
            return
        rows = self.alive[ended]
        x = self.x.clone()
        x[rows] = torch.where((written[rows].cumsum(1) > 0) & free[rows], end, x[rows])
        self.x, self.alive = x, self.alive[~ended]
        if self.cache is not None:
            self.cache.select_rows(~ended)

    def keep(self, here: slice) -> None:
        """Add the finished block to the cache."""
        if self.cache is not None and isinstance(self.network, BlockParameterization):
            self.network.read(self.x[self.alive, here], self.cache)


def _reading_all(network: BlockDenoiser, before: Tensor, size: int) -> Denoiser:
    """Return a denoiser of the block after `before`, [B, n], which it evaluates in each call."""

    def denoiser(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
        text = torch.cat([before, x_t], 1)
        here = torch.ones_like(x_t, dtype=torch.bool) if where is None else where
        needed = torch.cat([torch.zeros_like(before, dtype=torch.bool), here], 1)
        prediction = network.blocks(text, text, t[:, None].expand(text.shape), needed, size)
        return prediction if where is not None else MeanPrediction(prediction.values.view(*x_t.shape, -1))

    return denoiser

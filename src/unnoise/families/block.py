"""Block diffusion: blocks from left to right, masked diffusion within each (BD3-LM, arXiv:2503.09573).

p(x) = Π_k p(x^k | x^{<k}), where each factor is a masked diffusion given the clean blocks before it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser, SamplingDenoiser
from unnoise.network.attention import KVCache, block_visibility
from unnoise.network.parameterization import MeanParameterization
from unnoise.prediction import MeanPrediction, Prediction
from unnoise.process.masked import Masked
from unnoise.process.state import ProcessBase, position_times
from unnoise.rng import Generator, RowGenerator
from unnoise.sampler.ancestral import Ancestral
from unnoise.sampler.sampler_base import MOST_STEPS, Frame, Sampler
from unnoise.sampler.unmasking import FirstHitting
from unnoise.schedule import LogLinear, Schedule


class Blocks(Masked):
    """Masked noise on one block of a sequence at a time, given the clean blocks before it.

    block: tokens per block; the last block may have fewer.
    whole_text: whether the denoiser was also trained on sequences as one block, as in MDLM, so that it can infill before given
        text.
    """

    def __init__(self, vocab: int, block: int = 4, whole_text: bool = False, schedule: Schedule | None = None):
        super().__init__(vocab, schedule or LogLinear(1e-3))
        if isinstance(block, bool) or not isinstance(block, int) or block < 1:
            raise ValueError(f"the block of a block diffusion must be a whole number ≥ 1, found {block!r}")
        self.block, self.whole_text = block, whole_text

    def conditions_exactly(self, known: Sequence[bool]) -> bool:
        """Return True with `whole_text`, or if nothing is given after the first block to sample."""
        first = list(known).index(False) if False in known else len(known)
        return self.whole_text or not any(known[(first // self.block + 1) * self.block :])


class BlockPrediction(Prediction):
    """μ(x_0^i | x_t^k, x^{<k}), for samplers that proceed block by block."""


@runtime_checkable
class BlockDenoiser(Protocol):
    """A denoiser that predicts each block from its noised tokens and the clean blocks before it."""

    def blocks(self, x_t: Tensor, x: Tensor, t: Tensor, where: Tensor, block: int) -> MeanPrediction:
        """Return μ(x_0^i | x_t^k, x^{<k}) at the n positions `where`, k the block of i: x_t, x, t, where [B, L] → [n, K]."""
        ...


def block_denoiser(denoiser: object, who: str) -> BlockDenoiser:
    """Return the denoiser if it predicts blocks, or raise ValueError."""
    if not isinstance(denoiser, BlockDenoiser):
        raise ValueError(f"{who} needs a denoiser with `blocks`, found {type(denoiser).__name__}")
    return denoiser


class BlockParameterization(MeanParameterization):
    """μ = softmax of K outputs.

    `blocks` evaluates x_t ⊕ x, all blocks at once. `within` evaluates one block after the cached ones. A plain call treats the
    sequence as one block, as MDLM does, if the model was trained for this, and otherwise each block given the blocks before it.
    """

    prediction: ClassVar[type[Prediction]] = BlockPrediction
    process: Blocks

    @classmethod
    def network_config(cls, process: ProcessBase, length: int, time_free: bool) -> dict[str, Any]:
        assert isinstance(process, Blocks)
        last = -(-length // process.block) * process.block  # sequences are padded to whole blocks
        return super().network_config(process, last, time_free) | {"grid": ()}

    def log_probs(self, x_t: Tensor, t: Tensor, where: Tensor | None) -> Tensor:
        if self.process.whole_text or x_t.shape[1] <= self.process.block:
            return super().log_probs(x_t, t, where)
        at = torch.ones_like(x_t, dtype=torch.bool) if where is None else where
        found = self._block_log_probs(x_t, x_t, position_times(t, x_t), at, self.process.block)
        return found.view(*x_t.shape, -1) if where is None else found

    def blocks(self, x_t: Tensor, x: Tensor, t: Tensor, where: Tensor, block: int) -> MeanPrediction:
        """Return μ(x_0^i | x_t^k, x^{<k}) at the n positions `where`: x_t, x, t, where [B, L] → [n, K]."""
        return self.guided(lambda one: one._block_log_probs(x_t, x, t, where, block))

    def _block_log_probs(self, x_t: Tensor, x: Tensor, t: Tensor, where: Tensor, block: int) -> Tensor:
        twice = torch.cat([x_t, x], 1)
        needed = torch.cat([where, torch.zeros_like(where)], 1)
        times = torch.cat([t, torch.zeros_like(t)], 1)
        if "block" in self.keywords:
            output = self.call(twice, times, needed, block=block)
        else:
            mask, positions = block_visibility(x.shape[1], block, x.device)
            output = self.call(twice, times, needed, attention_mask=mask, positions=positions)
        return torch.log_softmax(output if output.dim() == 2 else output[needed], -1)

    def visible(self, x_t: Tensor, t: Tensor, where: Tensor, present: Tensor | None) -> MeanPrediction:
        """Return μ of sequences as one block each, with padding where not `present`: [B, L] → [n, K] at `where`."""
        options = {} if present is None else {"present": present}
        output = self.call(x_t, t, where, **options)
        return MeanPrediction(torch.log_softmax(output if output.dim() == 2 else output[where], -1))

    @property
    def has_cache(self) -> bool:
        """True if clean blocks can be cached; guidance would need two caches."""
        return "cache" in self.keywords and self.guidance_scale == 1

    def read(self, tokens: Tensor, cache: KVCache) -> None:
        """Append a clean block to the cache: [B, n]."""
        cache.frozen = False
        clean = torch.zeros(tokens.shape, device=tokens.device)
        self.call(tokens, clean, torch.zeros_like(tokens, dtype=torch.bool), cache=cache)

    def within(self, cache: KVCache) -> Denoiser:
        """Return a denoiser of the block after the cached ones, which does not change the cache."""

        def denoiser(x_t: Tensor, t: Tensor, where: Tensor | None = None) -> MeanPrediction:
            cache.frozen = True
            return MeanPrediction(torch.log_softmax(self.run(x_t, t, where, cache), -1))

        return denoiser


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
                for frame in text.frames(self, sampler, k, here, free, generator=generator):
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
        self, outer_sampler: BlockSampler, sampler: Sampler, k: int, here: slice, free: Tensor, *, generator: Generator
    ) -> Iterator[Frame]:
        """Yield the states while block k, the positions `here`, is sampled."""
        outer, alive = self.denoiser, self.alive
        calls = SamplingDenoiser(
            outer.process,
            outer.process,
            self._of_block(here),
            here.stop - here.start,
            temperature=outer_sampler.temperature,
            top_p=outer_sampler.top_p,
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

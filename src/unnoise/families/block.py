"""Block diffusion: blocks from left to right, masked diffusion within each (BD3-LM, arXiv:2503.09573).

Masked noise in blocks: p(x) = Π_k p(x^k | x^{<k}), each factor a masked diffusion given the clean blocks before it.

Denoisers of block diffusion, which predict noised blocks from the clean blocks before them.
"""

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from unnoise.denoiser import Denoiser
from unnoise.network.attention import KVCache, block_visibility
from unnoise.network.parameterization import MeanParameterization
from unnoise.prediction import MeanPrediction, Prediction
from unnoise.process.masked import Masked
from unnoise.process.state import ProcessBase, position_times
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

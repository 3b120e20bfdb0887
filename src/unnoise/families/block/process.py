"""Masked noise in blocks: p(x) = Π_k p(x^k | x^{<k}), each factor a masked diffusion given the clean blocks before it."""

from collections.abc import Sequence

from unnoise.process.masked import Masked
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

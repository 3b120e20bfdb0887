"""A canvas: where texts are written. The common ground of every process, and all that an autoregressive model needs."""

import torch
from torch import Tensor, nn


class Canvas(nn.Module):
    """K real tokens and a blank (index K) for what is not written yet.

    vocab: K; states: how many values a position can have; inputs: what a network must read at a position, `states` tokens or
    that many numbers.
    """

    anchor: Tensor

    def __init__(self, vocab: int, states: int | None = None):
        super().__init__()
        if isinstance(vocab, bool) or not isinstance(vocab, int) or vocab < 1:
            raise ValueError(f"a process needs a vocabulary of at least one token, found vocab = {vocab}")
        self.vocab = vocab
        self.states = vocab + 1 if states is None else states
        self.register_buffer("anchor", torch.empty(0), persistent=False)

    @property
    def device(self) -> torch.device:
        """Where this process makes its noise; it moves with `process.to(device)`."""
        return self.anchor.device

    @property
    def inputs(self) -> int:
        """What a network reads at a position."""
        return self.states

    def prior(self, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
        """The canvas at t = 1, all blank: long of the given shape."""
        return torch.full(shape, self.vocab, device=self.device)

    def check_tokens(self, x: Tensor) -> None:
        """Raise ValueError unless x is [B, L] long with tokens 0…K−1."""
        if not isinstance(x, Tensor):
            raise ValueError(f"tokens must be a long tensor of shape [B, L], found {type(x).__name__}")
        if x.dim() != 2 or x.dtype != torch.long:
            raise ValueError(f"tokens must be a long tensor of shape [B, L], found {x.dtype} {list(x.shape)}")
        if x.numel() and (int(x.min()) < 0 or int(x.max()) >= self.vocab):
            raise ValueError(
                f"tokens must lie in 0…{self.vocab - 1}, found {int(x.min())} to {int(x.max())}; "
                "is the codec the one this process was made for?"
            )

    def check_times(self, t: Tensor, x: Tensor) -> Tensor:
        """t as float64 [B], or ValueError unless it is [B] with values in [0, 1]."""
        if not isinstance(t, Tensor):
            raise ValueError(f"times must be a float tensor of shape {[x.shape[0]]}, found {type(t).__name__}")
        if t.shape != x.shape[:1] or not t.is_floating_point():
            raise ValueError(
                f"times must be a float tensor of shape {[x.shape[0]]}, one for each sequence, found {t.dtype} {list(t.shape)}"
            )
        if not bool(((t >= 0) & (t <= 1)).all()):
            raise ValueError(f"times must lie in [0, 1], found {t.min().item():.4g} to {t.max().item():.4g}")
        return t.double()

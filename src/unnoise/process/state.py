"""The base class of all processes: the states of a position, the checks of given tokens, and the blank template.

Autoregressive models need no more than this."""

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from unnoise.rng import Generator

PAD = -1  # padding of sequences of unequal length
TO_FILL = -1  # in `given`: one token to sample
OPEN_GAP = -2  # in `given`: any number of tokens to sample
LATEST = 1 - 1e-6  # denoisers are not called at t = 1, where a score is ∞·0


class ProcessBase(nn.Module):
    """K real tokens and a blank (index K) for positions that have not been sampled.

    vocab: K.
    states: number of values of a position.
    inputs: number of token states, or of numbers per position, in the input of a network.
    end: EOS token, if there is one.
    variable_length: whether the model chooses the length of a sequence.
    extra_positions: positions that the input of a network has in addition to the sequence.
    holds_tokens: whether states hold tokens and not real numbers.
    excluded: [K] bool, tokens that occur in no sequence and are never predicted as x_0 (uniform noise may still produce them);
        None if there are none.
    """

    anchor: Tensor
    excluded: Tensor | None
    end: int | None = None
    variable_length = False
    extra_positions = 0
    holds_tokens = True
    marks: ClassVar[dict[int, str]] = {TO_FILL: "where free"}  # values of `given` other than tokens

    def __init__(self, vocab: int, states: int | None = None):
        super().__init__()
        if isinstance(vocab, bool) or not isinstance(vocab, int) or vocab < 1:
            raise ValueError(f"a process needs a vocabulary of at least one token, found vocab = {vocab}")
        self.vocab = vocab
        self.states = vocab + 1 if states is None else states
        self.register_buffer("anchor", torch.empty(0), persistent=False)
        self.register_buffer("excluded", None, persistent=False)

    def exclude(self, tokens: Sequence[int]) -> None:
        """Exclude tokens that occur in no sequence from x_0."""
        excluded = torch.zeros(self.vocab, dtype=torch.bool, device=self.device)
        excluded[list(tokens)] = True
        if bool(excluded.all()):
            raise ValueError(f"a process needs a token that is not excluded, found all {self.vocab} excluded")
        self.excluded = excluded if tokens else None

    @property
    def device(self) -> torch.device:
        """Device of the noise; `process.to(device)` changes it."""
        return self.anchor.device

    @property
    def inputs(self) -> int:
        """Number of token states, or of numbers per position, in the input of a network."""
        return self.states

    def prior(self, shape: tuple[int, ...], generator: Generator = None) -> Tensor:
        """Return the state at t = 1, all blank: long of the given shape."""
        return torch.full(shape, self.vocab, device=self.device)

    def curves(self) -> dict[str, Callable[[Tensor], Tensor]]:
        """Return the remaining signal by name for plots: α(t), [n] → [n], or [n, K] with one schedule per token."""
        return {}

    def blank(self, batch: int, length: int) -> Tensor:
        """Return the argument `given` without given tokens: [B, ·], −1 for each position to sample."""
        return torch.full((batch, length), TO_FILL)

    def begin(self, given: Tensor, generator: Generator = None) -> Tensor:
        """Return the state at t = 1 with the given tokens: given [B, L], −1 where free → [B, L]."""
        given = given.to(self.anchor.device)
        return torch.where(given < 0, self.prior(tuple(given.shape), generator), given)

    def conditions_exactly(self, known: Sequence[bool]) -> bool:
        """Return whether fixing the known positions during sampling gives the model's exact conditional distribution."""
        return False

    def check_given(self, given: Tensor, batch: int, length: int) -> None:
        """Raise ValueError unless given is [B, length] long (of any length, if that is variable) with tokens and marks."""
        if not isinstance(given, Tensor):
            raise ValueError(f"given must be a long tensor of shape {[batch, length]}, found {type(given).__name__}")
        wanted = (batch, given.shape[-1] if self.variable_length else length)
        marks = " or ".join(f"{mark} {meaning}" for mark, meaning in self.marks.items())
        if given.shape != wanted or given.dtype != torch.long:
            raise ValueError(
                f"given must be a long tensor of shape {list(wanted)} with {marks}, found {given.dtype} {list(given.shape)}"
            )
        if given.numel() and (int(given.min()) < min(self.marks) or int(given.max()) >= self.vocab):
            raise ValueError(
                f"given must hold tokens 0…{self.vocab - 1}, or {marks}, found {int(given.min())} to {int(given.max())}"
            )

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
        """Return t as float64, or raise ValueError unless it is [B] or [B, L] with values in [0, 1]."""
        if not isinstance(t, Tensor):
            raise ValueError(f"times must be a float tensor of shape {[x.shape[0]]}, found {type(t).__name__}")
        if t.shape not in (x.shape[:1], x.shape) or not t.is_floating_point():
            raise ValueError(
                f"times must be a float tensor of shape {[x.shape[0]]}, one for each sequence, or {list(x.shape)}, "
                f"found {t.dtype} {list(t.shape)}"
            )
        if not bool(((t >= 0) & (t <= 1)).all()):
            raise ValueError(f"times must lie in [0, 1], found {t.min().item():.4g} to {t.max().item():.4g}")
        return t.double()


def position_times(t: Tensor, x: Tensor) -> Tensor:
    """Return the time of each position: t [B] or [B, L], x [B, L] → [B, L]."""
    return t if t.dim() == 2 else t[:, None].expand(x.shape)

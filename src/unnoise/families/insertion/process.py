"""Texts of variable length: tokens are inserted as masks, then unmasked (Flex-MDM, arXiv:2509.01025).

The clock u = 1 − t runs from an empty text to the full text. Each token of x_0 is inserted as a mask at a time T₁ with
distribution function a(u), and unmasked at T₂ > T₁ with density b′(u)/(1 − b(T₁)). Two schedules give a = α_a(t), b = α_b(t).
x_u keeps the inserted tokens in their order; a *gap* is how many tokens are still missing between two neighbours.

Texts of unequal length are padded with −1 at the end; padding is nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from unnoise.process.state import FREE, OPEN, PAD, StateSpace
from unnoise.rng import Generator, uniform
from unnoise.schedule import Linear, PerToken, Schedule


@dataclass(frozen=True)
class Partial:
    """A partial sequence aligned with the complete one: present tokens, their targets, and the number missing in each gap.

    x: [B, M] tokens, the mask K, or −1; target: [B, M] the token of x_0 at each of these positions, or −1; gaps: [B, M+1] how
    many tokens of x_0 are missing before each position, the last after them all (0 beyond a row's end).
    """

    x: Tensor
    target: Tensor
    gaps: Tensor


class Insertion(StateSpace):
    """Insertion and unmasking over K tokens and a mask (index K), with a schedule for each.

    A network reads K + 3 symbols: tokens, the mask, a start symbol before the text (K+1), and padding (K+2).
    """

    insertion: Schedule
    unmasking: Schedule
    variable_length = True
    extra_positions = 1  # the start symbol
    marks: ClassVar[dict[int, str]] = {FREE: "for one free token", OPEN: "for any number of them"}

    def __init__(self, vocab: int, insertion: Schedule | None = None, unmasking: Schedule | None = None):
        super().__init__(vocab)
        self.insertion, self.unmasking = insertion or Linear(), unmasking or Linear()
        for schedule in (self.insertion, self.unmasking):
            if isinstance(schedule, PerToken):
                raise ValueError("Insertion needs one schedule for all tokens; PerToken is for Masked")
            schedule.check()
            ends = schedule.alpha(torch.tensor([0.0, 1.0], dtype=torch.float64))
            if abs(float(ends[0]) - 1) > 1e-9 or abs(float(ends[1])) > 1e-9:
                raise ValueError(
                    f"Insertion needs schedules with α(0) = 1 and α(1) = 0, found {float(ends[0]):.4g} and {float(ends[1]):.4g}"
                )
        self.mask = vocab

    @property
    def inputs(self) -> int:
        return self.vocab + 3

    def curves(self) -> dict[str, Callable[[Tensor], Tensor]]:
        return {"a, the tokens inserted": self.insertion.alpha, "b, the unmasking": self.unmasking.alpha}

    def blank(self, batch: int, length: int) -> Tensor:
        return torch.full((batch, 1), OPEN)

    def begin(self, given: Tensor, generator: Generator = None) -> Tensor:
        """Return the state at t = 1: a mask for each free token; marks for any number of tokens stay."""
        return given.to(self.device).masked_fill(given.to(self.device) == FREE, self.mask)

    def check_tokens(self, x: Tensor) -> None:
        """Raise ValueError unless x is [B, L] long with tokens 0…K−1, then −1 to the end of each row."""
        if isinstance(x, Tensor) and x.dim() == 2 and x.dtype == torch.long:
            absent = x == PAD
            if bool((absent[:, :-1] & ~absent[:, 1:]).any()):
                raise ValueError("texts are padded with -1 at their end only, found a token after padding")
            super().check_tokens(x.masked_fill(absent, 0))
        else:
            super().check_tokens(x)

    def corrupt(self, x: Tensor, t: Tensor, generator: Generator = None) -> Partial:
        """x_u for u = 1 − t: x [B, L] padded with −1, t [B] → Partial."""
        self.check_tokens(x)
        at = self.check_times(t, x)[:, None]
        first = uniform(x.shape, x.device, generator)
        second = uniform(x.shape, x.device, generator)
        inserted = (x != PAD) & (first < self.insertion.alpha(at))
        then = self.unmasking.alpha(self.insertion.inverse(first))  # b(T₁), with a(T₁) = first
        visible = inserted & (second * (1 - then) < self.unmasking.alpha(at) - then)
        return self.align(x, inserted, visible)

    def align(self, x: Tensor, inserted: Tensor, visible: Tensor) -> Partial:
        """Keep the inserted tokens in order, masked unless visible, and count what is missing: [B, L] each → Partial."""
        batch, length = x.shape
        place = inserted.long().cumsum(1)  # how many are there up to and with this one
        index = torch.where(inserted, place - 1, length)  # the others go to a column that is cut off
        target = torch.full((batch, length + 1), PAD, device=x.device).scatter(1, index, x)[:, :length]
        shown = torch.where(visible, x, self.mask)
        canvas = torch.full((batch, length + 1), PAD, device=x.device).scatter(1, index, shown)[:, :length]
        missing = ((x != PAD) & ~inserted).long()
        gaps = torch.zeros(batch, length + 1, dtype=torch.long, device=x.device).scatter_add(1, place, missing)
        longest = int(place[:, -1].max()) if length else 0
        return Partial(canvas[:, :longest], target[:, :longest], gaps[:, : longest + 1])

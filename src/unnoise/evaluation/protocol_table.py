"""Evaluation protocols: how the code of a paper cuts texts into windows, and what it averages."""

from dataclasses import dataclass

from unnoise.evaluation.chunks import Wrapping
from unnoise.evaluation.published import PublishedLoss
from unnoise.schedule import Linear


@dataclass(frozen=True)
class Protocol:
    """Evaluation protocol of a paper's code.

    wrapping: how documents become windows.
    loss: loss that is averaged, or None for the bound itself.
    stream: how one long text (text8, enwik8) becomes windows, if different.
    first_given: whether the first token of a window is never noised and not counted.
    bits: whether the published number is bits per token instead of a perplexity.
    remark: other properties.
    """

    name: str
    paper: str
    wrapping: Wrapping
    loss: PublishedLoss | None
    stream: Wrapping | None = None
    first_given: bool = False
    bits: bool = False
    remark: str = ""

    def wrapping_of(self, stream: bool) -> Wrapping:
        """Return how one long text, or documents, become windows."""
        return self.stream if stream and self.stream is not None else self.wrapping

    @property
    def description(self) -> str:
        """One sentence for the user."""
        noised = "all noised, padding not counted" if self.wrapping.padded else "all noised and counted"
        counted = ", the BOS token given and not counted" if self.first_given else f", {noised}"
        loss = "every term of the bound" if self.loss is None else self.loss.description
        return "; ".join(part for part in (self.wrapping.description + counted, loss, self.remark) if part)


PLAIN = Wrapping(ends=False, rows=None)
_AROUND = Wrapping(ends=False, around=True)
PROTOCOLS = {
    one.name: one
    for one in (
        Protocol("bound", "this package", Wrapping(ends=True, rows=None), None, stream=PLAIN),
        Protocol("mdlm", "MDLM, arXiv:2406.07524", Wrapping(ends=True, around=True), PublishedLoss()),
        Protocol("mdlm-lm1b", "MDLM's runs on LM1B, arXiv:2406.07524", Wrapping(padded=True, around=True), PublishedLoss()),
        Protocol("sedd", "SEDD, arXiv:2310.16834", Wrapping(ends=True), PublishedLoss(), PLAIN, remark="its training loss"),
        Protocol("bd3lm", "BD3-LM, arXiv:2503.09573", _AROUND, PublishedLoss(schedule=Linear), first_given=True),
        Protocol("duo", "Duo, arXiv:2506.10892", _AROUND, PublishedLoss()),
        Protocol(
            "md4",
            "MD4, arXiv:2406.04329",
            Wrapping(ends=True),
            PublishedLoss(start=0.0, reconstruction=True),
            Wrapping(ends=False, rows=None, whole_batches=512),
            bits=True,
            remark="a stream is cut without EOS tokens, in whole batches of 512",
        ),
    )
}


def protocol(name: str) -> Protocol:
    """Return a protocol by its name, or raise ValueError."""
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol {name!r}: use one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]

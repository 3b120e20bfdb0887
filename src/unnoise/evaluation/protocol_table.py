"""The protocols by name: how each code base cuts texts into windows, and what it averages."""

from dataclasses import dataclass

from unnoise.evaluation.chunks import Wrapping
from unnoise.evaluation.published import PublishedLoss
from unnoise.schedule import Linear


@dataclass(frozen=True)
class Protocol:
    """How one code base evaluates.

    wrapping: how documents become windows. loss: what is averaged, or None for the bound itself. stream: how one long text
    (text8, enwik8) becomes windows, where that differs. first_given: the first token of a window is never noised and not
    counted. bits: the figure is bits per token, not a perplexity. remark: what else sets it apart, in words.
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
        """How one long text, or documents, become windows."""
        return self.stream if stream and self.stream is not None else self.wrapping

    @property
    def words(self) -> str:
        """The protocol in a sentence."""
        noised = "all noised, padding not counted" if self.wrapping.padded else "all of them noised and counted"
        counted = ", the begin token given and not counted" if self.first_given else f", {noised}"
        loss = "every term of the bound" if self.loss is None else self.loss.words
        return "; ".join(part for part in (self.wrapping.words + counted, loss, self.remark) if part)


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
            remark="a stream is cut without end tokens, in whole batches of 512",
        ),
    )
}


def protocol(name: str) -> Protocol:
    """A protocol by its name, or ValueError."""
    if name not in PROTOCOLS:
        raise ValueError(f"unknown protocol {name!r}: use one of {', '.join(PROTOCOLS)}")
    return PROTOCOLS[name]

"""Words for the mark [WORD]: `fill` ranks the words that fit by the model's own probability."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unnoise.apps.filling.word_filling import Candidate
    from unnoise.model.model import Model


def fill(
    model: "Model", text: str, most: int = 5, label: int | str | None = None, guidance_scale: float = 1.0
) -> "list[list[Candidate]]":
    """Return the most probable words for each [WORD] of a text, at most `most`, as pairs of a word and its probability.

    The model chooses the number of tokens of a word too. Probabilities are normalized over all candidates, of which the result
    holds the first. Marks are filled one after another, the most confident first. This works with models of masked noise, with
    ar, and with flexmdm, for which a probability is the share of samples.
    """
    from unnoise.apps.filling.word_filling import Filling

    if most < 1:
        raise ValueError(f"the number of candidates must be ≥ 1, found {most}")
    return Filling(model, text, label, guidance_scale).finished().candidates(most)

"""Spell checking with a noisy channel and a diffusion model."""

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unnoise.apps.spelling.speller import Correction
    from unnoise.model.model import Model


def correct(model: "Model", text: str, strength: float = 0.5, keep: str | Collection[str] = ()) -> "Correction":
    """Correct the spelling of a text with the words of the model's training text.

    strength: 0 changes nothing, 1 always takes the most probable candidate.
    keep: words that are never changed.
    """
    from unnoise.apps.spelling.speller import Speller
    from unnoise.apps.spelling.words import model_words

    keep = [keep] if isinstance(keep, str) else keep
    return Speller(model, model_words(model)).correct(text, strength, keep)

"""Spell checking with a noisy channel and a diffusion model."""

from unnoise.apps.spelling.channel import (
    Candidate as Candidate,
    Channel as Channel,
    evidence as evidence,
    matched_case as matched_case,
)
from unnoise.apps.spelling.context import can_correct as can_correct
from unnoise.apps.spelling.speller import Correction as Correction, Edit as Edit, Speller as Speller, correct as correct
from unnoise.apps.spelling.words import (
    FILE as FILE,
    WORD as WORD,
    WordCounts as WordCounts,
    Words as Words,
    model_words as model_words,
)

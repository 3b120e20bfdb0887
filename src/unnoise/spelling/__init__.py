"""Spell checking: words, how people misspell them, and a model that knows what fits."""

from unnoise.spelling.channel import Channel as Channel, evidence as evidence
from unnoise.spelling.context import CONTEXT as CONTEXT, can_correct as can_correct
from unnoise.spelling.counting import WORD as WORD
from unnoise.spelling.speller import (
    Candidate as Candidate,
    Correction as Correction,
    Edit as Edit,
    Speller as Speller,
    matched_case as matched_case,
)
from unnoise.spelling.words import FILE as FILE, Words as Words

"""Spell checking: words, how people misspell them, and a model that knows what fits."""

from unnoise.spelling.channel import Channel as Channel, evidence as evidence
from unnoise.spelling.speller import (
    CONTEXT as CONTEXT,
    Candidate as Candidate,
    Correction as Correction,
    Edit as Edit,
    Speller as Speller,
    matched_case as matched_case,
)
from unnoise.spelling.words import FILE as FILE, WORD as WORD, Words as Words

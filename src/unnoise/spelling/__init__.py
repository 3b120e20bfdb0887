"""Spell checking: words, how people misspell them, and a model that knows what fits."""

from unnoise.spelling.candidate import Candidate as Candidate, matched_case as matched_case
from unnoise.spelling.channel import Channel as Channel, evidence as evidence
from unnoise.spelling.context import can_correct as can_correct
from unnoise.spelling.counting import WORD as WORD
from unnoise.spelling.speller import Correction as Correction, Edit as Edit, Speller as Speller
from unnoise.spelling.words import FILE as FILE, Words as Words

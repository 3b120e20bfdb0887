"""Spell checking with a noisy channel and a diffusion model."""

from unnoise.spelling.candidate import Candidate as Candidate, matched_case as matched_case
from unnoise.spelling.channel import Channel as Channel, evidence as evidence
from unnoise.spelling.context import can_correct as can_correct
from unnoise.spelling.counting import WORD as WORD
from unnoise.spelling.speller import Correction as Correction, Edit as Edit, Speller as Speller, correct as correct
from unnoise.spelling.words import FILE as FILE, WordCounts as WordCounts, Words as Words, model_words as model_words

"""The likeliest words at a place in a text, with block diffusion: found by masked search, rescored block by block."""

import torch

from unnoise.apps.filling import search as word_search
from unnoise.apps.filling.left_to_right import left_to_right
from unnoise.apps.filling.search import Found, Place, WordTokens
from unnoise.denoiser import Denoiser
from unnoise.families.block import Blocks, block_denoiser
from unnoise.process.state import PAD

RANKED = 24  # words that are scored again
BEHIND = 8.0  # nats behind the likeliest word; words further behind are dropped
FEWEST = 2  # tokens before the place; with fewer, the chain rule over blocks would assume that the text starts there
FOLLOWING = 12  # tokens after the place that count


def find_words(process: Blocks, denoiser: Denoiser, words: WordTokens, place: Place) -> list[Found]:
    """Return words for a place, with log p(w, c | a).

    A model that was also trained on texts as one block gives two scores: the masked search, which treats the text as one block,
    and the chain rule over its blocks, Σ log p(token | all tokens before it) over w and the nearest tokens c after it. The mean
    of both, a product of experts, finds more words than either. Other block models use the chain rule alone.
    """
    found = sorted(word_search.find_words(process, denoiser, words, place), key=lambda word: -word.log_p)[:RANKED]
    found = [word for word in found if word.log_p > found[0].log_p - BEHIND]
    too_few = process.whole_text and len(place.before) < FEWEST
    if not found or not place.after or too_few:  # without text after the place, the search has scored the end of the word
        return found
    following = place.after[:FOLLOWING]
    rows = [[*place.before, *word.tokens, *following] for word in found]
    longest = max(map(len, rows))
    x = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows], device=process.device)
    chain = left_to_right(block_denoiser(denoiser, "filling in"), process, x, len(place.before)).double().sum(1).tolist()
    if not process.whole_text:
        return [word._replace(log_p=log_p) for word, log_p in zip(found, chain, strict=True)]
    return [word._replace(log_p=(word.log_p + log_p) / 2) for word, log_p in zip(found, chain, strict=True)]

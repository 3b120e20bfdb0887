"""The likeliest words for a place in a text, by block diffusion: found as by a model of masked noise, and read once more in the
order that the model writes in."""

import torch

from unnoise.denoiser import Denoiser
from unnoise.families.block.denoiser import block_denoiser
from unnoise.families.block.left_to_right import left_to_right
from unnoise.families.block.process import Blocks
from unnoise.model import word_search
from unnoise.model.word_search import Found, Place
from unnoise.model.word_tokens import WordTokens
from unnoise.process.state import PAD

RANKED = 24  # words that are read again
BEHIND = 8.0  # nats behind the likeliest; those that are further behind are not
FEWEST = 2  # tokens before the place; with fewer the order of writing takes what may be the middle of a text for its start
FOLLOWING = 12  # tokens behind the place that they are read with


def find_words(process: Blocks, denoiser: Denoiser, words: WordTokens, place: Place) -> list[Found]:
    """Words for a place, with log p(w, c | a).

    A model that also knows texts as one block has two answers, of one network: what a text as one block says, and the chain
    rule over its blocks, Σ log p(token | all before it) over w and the nearest tokens c behind it. Their mean, as of a product
    of experts, finds more words than either. One that knows blocks alone has the second.
    """
    found = sorted(word_search.find_words(process, denoiser, words, place), key=lambda word: -word.log_p)[:RANKED]
    found = [word for word in found if word.log_p > found[0].log_p - BEHIND]
    too_few = process.whole_text and len(place.before) < FEWEST
    if not found or not place.after or too_few:  # without an `after` the search says how likely it is that the word ends
        return found
    following = place.after[:FOLLOWING]
    rows = [[*place.before, *word.tokens, *following] for word in found]
    longest = max(map(len, rows))
    x = torch.tensor([row + [PAD] * (longest - len(row)) for row in rows], device=process.device)
    chain = left_to_right(block_denoiser(denoiser, "filling in"), process, x, len(place.before)).double().sum(1).tolist()
    if not process.whole_text:
        return [word._replace(log_p=log_p) for word, log_p in zip(found, chain, strict=True)]
    return [word._replace(log_p=(word.log_p + log_p) / 2) for word, log_p in zip(found, chain, strict=True)]

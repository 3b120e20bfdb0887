"""Detokenizers of the zero-shot data sets, which restore ordinary spaces and symbols.

Each is a list of replacements in the order of the evaluations of SEDD (arXiv:2310.16834) and MDLM (arXiv:2406.07524). They are
part of a published number, because they change the tokens of a text.
"""

import re
from collections.abc import Callable

Detokenizer = Callable[[str], str]
Rule = tuple[str | re.Pattern[str], str]  # string or pattern, and its replacement


_WIKITEXT: list[Rule] = [
    ("s '", "s'"),
    *((f" @{mark}@ ", mark) for mark in "-,."),
    *((f" {mark} ", f"{mark} ") for mark in ":;.!?,"),
    (re.compile(r"\(\s*([^)]*?)\s*\)"), r"(\1)"),
    (re.compile(r"\[\s*([^]]*?)\s*\]"), r"[\1]"),
    (re.compile(r"\{\s*([^}]*?)\s*\}"), r"{\1}"),
    (re.compile(r'"\s*([^"]*?)\s*"'), r'"\1"'),
    (re.compile(r"'\s*([^']*?)\s*'"), r"'\1'"),
    *((" ".join("=" * n), "=" * n) for n in (4, 3, 2)),
    (" ° ", "°"),
    (" \n", "\n"),
    ("\n ", "\n"),
    (" N ", " 1 "),
    (" 's", "'s"),
]
_PTB: list[Rule] = [
    (" 's", "'s"),
    ("s ' ", "s' "),
    (" n't", "n't"),
    (" \n ", "\n"),
    ("\\/", "/"),
    *([(" N ", " 1 ")] * 10),  # neighbours share a space, so one pass leaves some
    ("$ 1", "$1"),
    ("# 1", "#1"),
    ("<unk>", "?"),
]
_LM1B: list[Rule] = [
    ("http : / / ", "http://"),
    ("https : / / ", "https://"),
    (re.compile(r" '(\w+)"), r"'\1"),
    (re.compile(r" (\w+) \. "), r" \1. "),
    (re.compile(r" (\w+) \.$"), r" \1."),
    (" ? ", "? "),
    (re.compile(r" \?$"), "?"),
    (" ! ", "! "),
    (re.compile(r" !$"), "!"),
    *((f" {mark} ", f"{mark} ") for mark in ",:;"),
    (" / ", "/"),
    (re.compile(r'" ([^"]+) "'), r'"\1"'),
    (re.compile(r"' ([^']+) '"), r"'\1'"),
    (re.compile(r"\( ([^()]+) \)"), r"(\1)"),
    (re.compile(r"\[ ([^][]+) \]"), r"[\1]"),
    ("$ ", "$"),
    ("£ ", "£"),
]


def _apply(rules: list[Rule], text: str) -> str:
    for found, instead in rules:
        text = text.replace(found, instead) if isinstance(found, str) else found.sub(instead, text)
    return text


def wikitext(text: str) -> str:
    """Detokenize WikiText-2 and -103: "4 @.@ 5 m ( 15 ft )" → "4.5 m (15 ft)"."""
    return _apply(_WIKITEXT, text)


def ptb(text: str) -> str:
    """Detokenize Penn Treebank: "does n't cost $ N" → "doesn't cost $1"; an unknown word is a question mark."""
    return _apply(_PTB, text)


def lm1b(text: str) -> str:
    """Detokenize One Billion Words: "he said , ' no ' ." → "he said, 'no'."."""
    return _apply(_LM1B, text)


def lambada(text: str) -> str:
    """Detokenize LAMBADA: straight double quotes, a newline before the text and no spaces around it."""
    return "\n" + text.replace("“", '"').replace("”", '"').strip()


def scientific_papers(text: str) -> str:
    """Detokenize arXiv and PubMed by the rules of WikiText, then of One Billion Words."""
    return lm1b(wikitext(text))

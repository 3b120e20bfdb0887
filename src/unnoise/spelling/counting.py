"""Fast word counts of large texts."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator

WORD = re.compile(r"(?<!\w)[A-Za-z]+(?:'[A-Za-z]+)*(?!\w)")
BLANK = re.compile(r"\s")
PIECE = 1 << 16  # characters counted at once, few enough for the processor's cache


def count_words(texts: Iterable[str]) -> Counter[str]:
    """Return the number of occurrences of each word, in lower case.

    Strings between blanks are counted first, and each distinct one is searched for words once.
    """
    tokens: Counter[str] = Counter()
    for text in texts:
        for piece in _pieces(text):
            tokens.update(piece.split())
    counts: Counter[str] = Counter()
    for token, count in tokens.items():
        if token.isascii() and token.isalpha():
            counts[token.lower()] += count
        else:
            for word in WORD.findall(token.lower()):
                counts[word] += count
    return counts


def _pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces that end at blanks."""
    start = 0
    while start < len(text):
        blank = BLANK.search(text, start + PIECE)
        stop = blank.start() if blank else len(text)
        yield text[start:stop]
        start = stop

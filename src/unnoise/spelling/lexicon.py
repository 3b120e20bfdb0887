"""English words beyond those of a training text: the list that comes with symspellpy (82,765 words, MIT licence)."""

import importlib.util
from functools import cache
from pathlib import Path

FILE = "frequency_dictionary_en_82_765.txt"


@cache
def lexicon() -> frozenset[str]:
    """The words, in lower case; none where the list is not there."""
    spec = importlib.util.find_spec("symspellpy")  # of which only the list is read
    path = Path(spec.origin).with_name(FILE) if spec is not None and spec.origin else None
    if path is None or not path.is_file():
        return frozenset()
    return frozenset(line.split()[0].lower() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip())

"""English words beyond the training text: the 82,765 words of symspellpy (MIT licence)."""

import importlib.util
from functools import cache
from pathlib import Path

FILE = "frequency_dictionary_en_82_765.txt"


@cache
def lexicon() -> frozenset[str]:
    """Return the words in lower case, or none if symspellpy is not installed."""
    spec = importlib.util.find_spec("symspellpy")  # only its word list is used
    path = Path(spec.origin).with_name(FILE) if spec is not None and spec.origin else None
    if path is None or not path.is_file():
        return frozenset()
    return frozenset(line.split()[0].lower() for line in path.read_text(encoding="utf-8-sig").splitlines() if line.strip())

"""The parts of a corpus, train, valid and test, and which document belongs to which."""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

SPLITS = ("train", "valid", "test")
ALIASES = {"validation": "valid", "val": "valid", "dev": "valid"}
Item = TypeVar("Item")


def split_name(name: str) -> str:
    """The split that a name means: validation, val and dev are valid."""
    return ALIASES.get(name, name)


def split_documents(texts: Sequence[Item]) -> dict[str, list[Item]]:
    """Whole documents to each split: of every twenty, the tenth to valid and the last to test."""
    if len(texts) < 20:
        few = list(texts)
        return {"train": few[:-2] or few, "valid": few[-2:-1] or few, "test": few[-1:]}
    sides = {9: "valid", 19: "test"}
    splits: dict[str, list[Item]] = {split: [] for split in SPLITS}
    for i, text in enumerate(texts):
        splits[sides.get(i % 20, "train")].append(text)
    return splits


def split_of(content: bytes, valid_share: float, test_share: float) -> int:
    """The number of the split of a document in a stream, by a hash of its content: equal documents are never divided."""
    place = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") / 2**64
    return 1 if place < valid_share else 2 if place < valid_share + test_share else 0

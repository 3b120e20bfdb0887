"""What every kind of training data offers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TypeVar

from unnoise.data.codec import Codec
from unnoise.data.texts import Texts

SAMPLE = 20_000  # characters
SPLITS = ("train", "valid", "test")
Item = TypeVar("Item")


class Source(ABC):
    """Where training data come from: texts, or images. label_names: of their classes, none where they have none."""

    name: str
    label_names: tuple[str, ...] = ()

    @property
    @abstractmethod
    def splits(self) -> list[str]:
        """The names of its parts."""

    @property
    def train_documents(self) -> list[str]:
        """The raw texts to train on; none where there are no texts."""
        return []

    def sample(self, split: str) -> str:
        """The first characters of a split, to see whether a codec gives them back; none where there are no texts."""
        return ""

    @abstractmethod
    def codec(self, name: str, ends: bool) -> Codec:
        """The codec of this name for these data; `auto` chooses. ends: documents are divided by an end token."""

    @abstractmethod
    def texts(self, codec: Codec, split: str, length: int, whole: bool = False) -> Texts:
        """A split as a model of this length reads it."""

    def check_split(self, split: str) -> None:
        """Raise ValueError unless there is such a split."""
        if split not in self.splits:
            raise ValueError(f"{self.name} has no {split} split; it has {', '.join(self.splits)}")


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

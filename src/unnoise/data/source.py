"""What every kind of training data can be asked."""

from abc import ABC, abstractmethod

from unnoise.data.codec import Codec
from unnoise.data.texts import Texts


class Source(ABC):
    """Where training data come from: texts, or images. classes: how many labels they have, 0 for none."""

    name: str
    classes: int = 0

    @property
    @abstractmethod
    def splits(self) -> list[str]:
        """The names of its parts."""

    @property
    def train_documents(self) -> list[str]:
        """The raw texts to train on; none where there are no texts."""
        return []

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

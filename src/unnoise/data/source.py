"""What every kind of training data offers."""

from abc import ABC, abstractmethod

from unnoise.data.codec import Codec
from unnoise.data.texts import Cut, Texts


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

    def lossless(self, codec: Codec, split: str, cut: Cut = "windows") -> bool:
        """Whether a codec gives the texts of a split back as they are, by their first characters."""
        return True

    @abstractmethod
    def codec(self, name: str, cut: Cut = "windows") -> Codec:
        """The codec of this name for these data; `auto` chooses. Whole texts need an end token, as do windows of a stream in
        which documents end; sentences need none."""

    @abstractmethod
    def texts(self, codec: Codec, split: str, length: int, cut: Cut = "windows") -> Texts:
        """A split as a model of this length reads it."""

    def check_split(self, split: str) -> None:
        """Raise ValueError unless there is such a split."""
        if split not in self.splits:
            raise ValueError(f"{self.name} has no {split} split; it has {', '.join(self.splits)}")

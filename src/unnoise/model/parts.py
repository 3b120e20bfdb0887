"""What a model consists of: a method, a network and a codec that fit together, and the samplers that serve them."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Self

import torch
from torch import Tensor, nn

from unnoise.data import Codec, codec as make_codec
from unnoise.data.codec import check_end
from unnoise.data.texts import PaddedSequences, Segmentation, SequenceData, Source
from unnoise.method_table import Method, method as method_named
from unnoise.model.sampling_options import SamplingOptions
from unnoise.network.network_base import build_network, check_network, device_of
from unnoise.network.transformer import sized
from unnoise.objective import Objective
from unnoise.sampler import Sampler
from unnoise.sampler_table import named_sampler, sampler_name, sampler_names


class ModelParts:
    """A method with its network and codec.

    length: of the longest text, in tokens. labels: the names of the classes that texts can be said to have.
    whole_texts: it reads whole texts, each with its end, and not windows of a stream.
    """

    def __init__(
        self,
        method: Method,
        codec: Codec,
        network: nn.Module,
        length: int,
        labels: Sequence[str] = (),
        whole_texts: bool = False,
    ):
        if isinstance(length, bool) or not isinstance(length, int) or length < 1:
            raise ValueError(f"a model's length must be a whole number ≥ 1, found {length!r}")
        self.method, self.codec, self.network, self.length = method, codec, network, length
        self.labels = tuple(map(str, labels))
        self.whole_texts = whole_texts
        if whole_texts:
            check_end(codec)
        self.process = method.process_for(codec.vocab, codec.grid).to(device_of(network))
        self.process.end = codec.eos
        self.process.exclude(codec.unused)
        check_network(network, needed_fields(method, codec.vocab, length, len(self.labels), codec.grid, codec.channels))
        self.denoiser = method.parameterization(network, self.process, length, len(self.labels))
        self.bound: Objective = method.bound(self.process)
        self.notes: dict[str, Any] = {}
        self.extra_files: dict[str, bytes] = {}  # small files of applications, saved and loaded with the model
        self.sampling: dict[str, Any] = {}  # recommended: steps, sampler, temperature and top_p where the user gives none
        self.card = ""  # what there is to know about it, in Markdown

    @classmethod
    def build(
        cls,
        method: str | Method,
        codec: Codec | str = "text8",
        length: int = 256,
        size: str = "tiny",
        width: int | None = None,
        depth: int | None = None,
        heads: int | None = None,
        seed: int = 0,
        labels: int | Sequence[str] = 0,
        network: str | nn.Module = "transformer",
        whole_texts: bool = False,
    ) -> Self:
        """An untrained model.

        method: a name from `unnoise.methods()`, or a Method. codec: a name, or a Codec. length: the longest text, in tokens.
        size: one dial (nano, tiny, small, base); width, depth and heads override it. labels: how many classes texts can be
        said to have, or their names. network: a registered name ("gru:width=128"), or any module that is a `Network`.
        whole_texts: whether it reads texts from beginning to end, and not windows of a stream.
        """
        entry = method_named(method) if isinstance(method, str) else method
        codec = make_codec(codec) if isinstance(codec, str) else codec
        names = [str(i) for i in range(labels)] if isinstance(labels, int) else list(map(str, labels))
        if isinstance(network, nn.Module):
            return cls(entry, codec, network, length, names, whole_texts)
        needed = needed_fields(entry, codec.vocab, length, len(names), codec.grid, codec.channels)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            built = build_network(network, needed, sized(size, width, depth, heads))
        return cls(entry, codec, built, length, names, whole_texts)

    def weights(self) -> dict[str, Tensor]:
        """Everything learned: the network's weights, and the process's if its schedule is learned."""
        named = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        return named | {f"process.{name}": value for name, value in self.process.state_dict().items()}

    def to(self, device: str | torch.device) -> Self:
        """This model, moved."""
        self.network.to(device)
        self.process.to(device)
        return self

    @property
    def device(self) -> torch.device:
        """Where the network and the process are."""
        return self.process.anchor.device

    @property
    def num_parameters(self) -> int:
        """How many numbers are learned."""
        return sum(value.numel() for value in self.weights().values())

    def __repr__(self) -> str:
        labels = f", labels={list(self.labels)}" if self.labels else ""
        network = f"{type(self.network).__name__} with {self.num_parameters:,} parameters"
        return f"{type(self).__name__}({self.method.name}, {self.codec!r}, {network}, length={self.length}{labels})"

    @property
    def segment(self) -> Segmentation:
        """How this model reads a corpus."""
        return "sentences" if self.process.variable_length else "documents" if self.whole_texts else "windows"

    def texts(self, source: Source, split: str, segment: Segmentation | None = None) -> SequenceData:
        """Return the sequences of a split, by default segmented as in training."""
        segment = segment or self.segment
        texts = source.texts(self.codec, split, self.length, segment)
        if segment != "documents" or self.method.stops_at_end or self.codec.eos is None:
            return texts
        return PaddedSequences(texts, self.codec.eos, self.length)

    def label_number(self, label: int | str | None) -> int | None:
        """The number of a class, from its name or number; ValueError if there is none such."""
        if label is None:
            return None
        if not self.labels:
            raise ValueError("this model was trained without labels")
        if isinstance(label, str):
            if label in self.labels:
                return self.labels.index(label)
            if not label.isdigit():
                raise ValueError(f"there is no label {label!r}; there are {', '.join(self.labels)}")
            label = int(label)
        if not 0 <= label < len(self.labels):
            raise ValueError(f"labels go from 0 to {len(self.labels) - 1}, found {label}")
        return label

    # ---- samplers ----------------------------------------------------------------------------------------------------

    def sampling_options(self, options: Mapping[str, Any]) -> SamplingOptions:
        """How it writes with these options: the model's own recommended ones wherever none is given."""
        return SamplingOptions.of(options).with_defaults(self.sampling)

    @cached_property
    def samplers(self) -> list[str]:
        """The names of the samplers that serve this model."""
        return [name for name in sampler_names() if self.is_served_by(named_sampler(name))]

    @property
    def own_sampler(self) -> str:
        """What the method's own sampler is called."""
        return sampler_name(self.method.sampler)

    def is_served_by(self, sampler: Sampler) -> bool:
        """Whether a sampler works with this model."""
        return sampler.serves(self.process, self.method.parameterization.prediction)

    def check_sampler(self, sampler: str | Sampler) -> None:
        """ValueError, with those that do, unless the sampler works with this model."""
        found = named_sampler(sampler) if isinstance(sampler, str) else sampler
        if not self.is_served_by(found):
            name = sampler if isinstance(sampler, str) else sampler_name(found)
            raise ValueError(f"{self.method.name} cannot write with {name}: use one of {', '.join(self.samplers)}")


def needed_fields(
    method: Method, vocab: int, length: int, labels: int = 0, grid: tuple[int, ...] = (), channels: int = 1
) -> dict[str, Any]:
    """The fields of a network's configuration that the method, the codec and the labels decide."""
    process = method.process_for(vocab, grid)
    if process.variable_length and grid:
        raise ValueError(f"{method.name} writes texts of variable length, and an image has a fixed one: use another method")
    data = {"labels": labels, "grid": grid, "channels": channels}
    return data | method.parameterization.network_config(process, length, method.time_free)

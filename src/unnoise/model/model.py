"""The Model class: a method, a codec and a network in one object, with methods to sample, measure, save and upload."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from unnoise.data import Codec, Pixels, codec as make_codec
from unnoise.data.codec import check_end
from unnoise.data.texts import PaddedSequences, Segmentation, SequenceData, Source
from unnoise.method_table import Method, method as method_named
from unnoise.model import denoise as denoising, generate as generation, likelihood
from unnoise.model.generate import GAP, MASK, OnStep, Step, Template
from unnoise.model.sampling_options import SamplingOptions
from unnoise.network.network_base import build_network, check_network, device_of
from unnoise.network.transformer import sized
from unnoise.objective import Objective
from unnoise.process.state import OPEN_GAP
from unnoise.registry import check_keywords
from unnoise.sampler import Sampler
from unnoise.sampler_table import named_sampler, sampler_name, sampler_names

if TYPE_CHECKING:
    from unnoise.model.push import Pushed


class Model:
    """A method with a codec and a network.

    length: maximum number of tokens in a sequence.
    labels: names of the classes that samples can be conditioned on.
    whole_texts: train on whole texts that end with EOS instead of windows of a stream.
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
        if whole_texts:
            check_end(codec)
        self.method, self.codec, self.network, self.length = method, codec, network, length
        self.labels, self.whole_texts = tuple(map(str, labels)), whole_texts
        self.process = method.process_for(codec.vocab, codec.grid).to(device_of(network))
        self.process.end = codec.eos
        self.process.exclude(codec.unused)
        fields = method.network_fields(codec.vocab, length, labels=len(self.labels), grid=codec.grid, channels=codec.channels)
        check_network(network, fields)
        self.denoiser = method.parameterization(network, self.process, length, len(self.labels))
        self.bound: Objective = method.bound(self.process)
        self.notes: dict[str, Any] = {}
        self.extra_files: dict[str, bytes] = {}  # small files of applications, saved and loaded with the model
        self.sampling: dict[str, Any] = {}  # recommended sampling options, used where the caller gives none
        self.card = ""  # the model card in Markdown

    @classmethod
    def build(
        cls,
        method: str | Method,
        codec: Codec | str = "text8",
        length: int = 256,
        size: str = "tiny",
        *,
        width: int | None = None,
        depth: int | None = None,
        heads: int | None = None,
        seed: int = 0,
        labels: int | Sequence[str] = 0,
        network: str | nn.Module = "transformer",
        whole_texts: bool = False,
    ) -> Self:
        """Build an untrained model.

        method: a name from `unnoise.methods()`, or a Method.
        codec: a name, or a Codec.
        length: maximum number of tokens in a sequence.
        size: nano, tiny, small or base; width, depth and heads override it.
        seed: seed of the initial weights.
        labels: number of classes, or their names.
        network: a registered name with fields, such as "gru:width=128", or any module that is a `Network`.
        whole_texts: train on whole texts that end with EOS instead of windows of a stream.
        """
        entry = method_named(method) if isinstance(method, str) else method
        codec = make_codec(codec) if isinstance(codec, str) else codec
        names = [str(i) for i in range(labels)] if isinstance(labels, int) else list(map(str, labels))
        if isinstance(network, str):
            data = {"labels": len(names), "grid": codec.grid, "channels": codec.channels}
            fields = entry.network_fields(codec.vocab, length, **data)
            with torch.random.fork_rng():
                torch.manual_seed(seed)
                network = build_network(network, fields, sized(size, width, depth, heads))
        return cls(entry, codec, network, length, labels=names, whole_texts=whole_texts)

    def __repr__(self) -> str:
        labels = f", labels={list(self.labels)}" if self.labels else ""
        network = f"{type(self.network).__name__} with {self.num_parameters:,} parameters"
        return f"{type(self).__name__}({self.method.name}, {self.codec!r}, {network}, length={self.length}{labels})"

    # ---- weights and files -------------------------------------------------------------------------------------------

    def weights(self) -> dict[str, Tensor]:
        """Return the tensors of the network and of the process (a learned schedule) by name."""
        named = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        return named | {f"process.{name}": value for name, value in self.process.state_dict().items()}

    @property
    def num_parameters(self) -> int:
        """The number of learned parameters."""
        return sum(value.numel() for value in self.weights().values())

    @property
    def device(self) -> torch.device:
        """The device of the network and the process."""
        return self.process.anchor.device

    def to(self, device: str | torch.device) -> Self:
        """Move the model to a device and return it."""
        self.network.to(device)
        self.process.to(device)
        return self

    def config(self) -> dict[str, Any]:
        """Return the content of config.json, or raise ValueError if a part of the model is not registered."""
        from unnoise.model import io

        return io.describe(self)

    def save(self, path: str | Path, dtype: str | None = None) -> None:
        """Write config.json, model.safetensors and the codec's files to a folder, each file atomically.

        dtype: precision of the saved weights, float32, float16, bfloat16 or int8; by default unchanged.
        """
        from unnoise.model import io

        io.save(self, Path(path), dtype=dtype)

    @staticmethod
    def load(
        path: str | Path, mask_token: int | None = None, method: str | None = None, codec: str | Path | Codec | None = None
    ) -> "Model":
        """Load a saved, bundled or published model; see `unnoise.load`."""
        from unnoise.model import io

        return io.load(path, mask_token, method, codec)

    def push(
        self,
        repo_id: str,
        to: str | None = None,
        *,
        private: bool = False,
        message: str | None = None,
        license: str | None = None,
    ) -> "Pushed":
        """Upload the model to the Hugging Face hub with a README.md (needs the extra `hub`).

        Raise ValueError before uploading anything if the model or the repository is unsuitable.

        repo_id: owner/name of the repository; `load` accepts the same name.
        to: a published layout (mdlm, sedd, bd3lm, udlm, duo, gidd, flexmdm); by default our own format.
        private: create a private repository.
        message: commit message.
        license: license of the model, as the hub names it.
        """
        from unnoise.checkpoint.published.hub import Upload
        from unnoise.model.push import push

        return push(self, Upload.begin(repo_id), to, private=private, message=message, license=license)

    # ---- data and options --------------------------------------------------------------------------------------------

    @property
    def segment(self) -> Segmentation:
        """The default segmentation of a corpus into sequences."""
        return "sentences" if self.process.variable_length else "documents" if self.whole_texts else "windows"

    def texts(self, source: Source, split: str, segment: Segmentation | None = None) -> SequenceData:
        """Return the sequences of a split, by default segmented as in training."""
        segment = segment or self.segment
        texts = source.texts(self.codec, split, self.length, segment)
        if segment != "documents" or self.method.stops_at_end or self.codec.eos is None:
            return texts
        return PaddedSequences(texts, self.codec.eos, self.length)

    def label_number(self, label: int | str | None) -> int | None:
        """Return the index of a class given by name or index, or raise ValueError."""
        if label is None:
            return None
        if not self.labels:
            raise ValueError("this model was trained without labels: leave label out")
        if isinstance(label, str):
            if label in self.labels:
                return self.labels.index(label)
            if not label.isdigit():
                raise ValueError(f"there is no label {label!r}; there are {', '.join(self.labels)}")
            label = int(label)
        if not 0 <= label < len(self.labels):
            raise ValueError(f"labels go from 0 to {len(self.labels) - 1}, found {label}")
        return label

    def sampling_options(self, options: Mapping[str, Any]) -> SamplingOptions:
        """Return sampling options from keywords, with the model's recommendations for those that are missing."""
        check_keywords(SamplingOptions, options, "sampling")
        given = SamplingOptions(**options)
        return replace(given, **given.applicable(self.sampling))

    @cached_property
    def samplers(self) -> list[str]:
        """The names of the samplers that work with this model."""
        kind = self.method.parameterization.prediction
        return [name for name in sampler_names() if named_sampler(name).serves(self.process, kind)]

    @property
    def own_sampler(self) -> str:
        """The name of the method's sampler."""
        return sampler_name(self.method.sampler)

    def check_sampler(self, sampler: str | Sampler) -> None:
        """Raise ValueError if a sampler does not work with this model."""
        found = named_sampler(sampler) if isinstance(sampler, str) else sampler
        if not found.serves(self.process, self.method.parameterization.prediction):
            name = sampler if isinstance(sampler, str) else sampler_name(found)
            raise ValueError(f"{self.method.name} cannot sample with {name}: use one of {', '.join(self.samplers)}")

    # ---- sampling ----------------------------------------------------------------------------------------------------

    def generate(self, n: int = 1, length: int | None = None, on_step: OnStep | None = None, **options: Any) -> list[str]:
        """Sample n texts of `length` tokens (at most, for methods of variable length).

        on_step: function called with every state of the first text, as `chain` yields them.
        options: fields of `SamplingOptions`.
        """
        template = self.template(None, length)
        return generation.sample_texts(self, template, n, length, self.sampling_options(options), on_step=on_step)

    def chain(self, length: int | None = None, template: str | None = None, row: int = 0, **options: Any) -> Iterator[Step]:
        """Yield the states of one sample, from noise to text.

        template: text to fill in, as for `infill`.
        row: number of the sample among those that `generate` or `infill` returns with the same options.
        """
        before, chosen = None, self.sampling_options(options)
        for frame in generation.frames(self, self.template(template, length), range(row, row + 1), length, chosen):
            yield generation.shown_step(self, frame, before)
            before = frame

    def stream(self, prefix: str = "", length: int | None = None, row: int = 0, **options: Any) -> Iterator[str]:
        """Yield a text that begins with `prefix` in pieces: tokens for ar, blocks for bd3lm, else the whole text at once.

        row: number of the sample among those that `complete` returns with the same options.
        """
        template = self.completion(prefix, "", length)
        return generation.stream(self, template, row, length or self.length, self.sampling_options(options))

    def infill(self, text: str, n: int = 1, length: int | None = None, **options: Any) -> list[str]:
        """Return n variants of a text with each [MASK] replaced by one token and each [GAP] by any number of tokens.

        [GAP] needs a method of variable length; `length` then limits the whole text.
        """
        return generation.sample_texts(self, self.template(text), n, length, self.sampling_options(options))

    def complete(self, prefix: str = "", suffix: str = "", length: int | None = None, n: int = 1, **options: Any) -> list[str]:
        """Sample n texts of `length` tokens (at most, for methods of variable length) with a given prefix and suffix."""
        template = self.completion(prefix, suffix, length)
        return generation.sample_texts(self, template, n, length or self.length, self.sampling_options(options))

    def draw(
        self,
        n: int = 1,
        given: np.ndarray | None = None,
        known: np.ndarray | None = None,
        on_step: OnStep | None = None,
        **options: Any,
    ) -> np.ndarray:
        """Sample n images: [n, H, W(, C)] uint8.

        given: image to complete.
        known: pixels of `given` to keep, bool of the same shape; by default all.
        on_step: function called with every state of the first image.
        """
        codec = self.codec
        if not isinstance(codec, Pixels):
            raise ValueError("this is a model of text: use generate")
        tokens = np.full(self.length, -1) if given is None else codec.encode_image(given)
        if known is not None:
            tokens = np.where(known.reshape(-1), tokens, -1)
        template = Template([], [], tokens.tolist())
        images = generation.sample_rows(
            self,
            template,
            n,
            None,
            self.sampling_options(options),
            results=lambda last: [codec.decode_image(row) for row in last.x.cpu().numpy()],
            on_step=on_step,
        )
        return np.stack(images)

    def template(self, text: str | None = None, length: int | None = None) -> Template:
        """Return the template of a text with [MASK]s and [GAP]s, or an empty template of a length."""
        if text is None:
            length = self.length if length is None else length
            self._check_length(length)
            return Template.between("", self.process.blank(1, length)[0].tolist(), "", self.codec)
        if GAP in text and not self.process.variable_length:
            raise ValueError(
                f"{GAP} stands for any number of tokens, which {self.method.name} cannot choose: use {MASK} for each token, "
                "or a model of variable length (flexmdm)"
            )
        template = Template.parse(text, self.codec)
        tokens = sum(token != OPEN_GAP for token in template.given)
        if tokens > self.length:
            raise ValueError(f"this model's sequences have at most {self.length} tokens, found {tokens}")
        return template

    def completion(self, prefix: str = "", suffix: str = "", length: int | None = None) -> Template:
        """Return the template of `complete`."""
        longest = self.length if length is None else length
        given = sum(map(len, generation.given_sides(prefix, suffix, self.codec)))
        if longest <= given:
            raise ValueError(f"prefix and suffix have {given} tokens: nothing is left to sample in a length of {longest}")
        self._check_length(longest)
        blanks = self.process.blank(1, longest - given)[0].tolist()
        return Template.between(prefix, blanks, suffix, self.codec)

    def _check_length(self, length: int) -> None:
        if not 1 <= length <= self.length:
            raise ValueError(f"the length of this model's texts is 1 to {self.length} tokens, found {length}")

    fills_exactly = generation.fills_exactly
    candidates = generation.candidates
    denoise = denoising.denoise

    # ---- likelihoods -------------------------------------------------------------------------------------------------

    score = likelihood.score
    nats = likelihood.nats
    bits_per_char = likelihood.bits_per_char

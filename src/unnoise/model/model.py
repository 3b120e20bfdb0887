"""The object people use: codec, network and method in one, with the verbs they want."""

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from unnoise.data import Codec, Pixels, codec as make_codec
from unnoise.data.codec import check_end
from unnoise.data.source import Source
from unnoise.data.texts import Cut, FilledTexts, Texts
from unnoise.method_table import Method, method as method_named
from unnoise.model import generate, io, likelihood
from unnoise.model.fill import Candidate, Filling
from unnoise.model.generate import OnStep, Step
from unnoise.model.likelihood import Score
from unnoise.model.options import SamplingKeywords, SamplingOptions
from unnoise.model.template import BLANKS, GAP, MASK, WORD, Template
from unnoise.model.word_tokens import WordTokens
from unnoise.network.base import check_network, device_of
from unnoise.network.table import build_network
from unnoise.network.transformer import sized
from unnoise.objective import Objective
from unnoise.process.state import OPEN
from unnoise.sampler import Sampler
from unnoise.sampler_table import named_sampler, sampler_name, sampler_names
from unnoise.spelling import Correction, Speller, Words


class Model:
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
        self.process = method.process(codec.vocab).to(device_of(network))
        self.process.end = codec.end
        check_network(network, needed_fields(method, codec.vocab, length, len(self.labels), codec.grid, codec.channels))
        self.denoiser = method.parameterization(network, self.process, length, len(self.labels))
        self.bound: Objective = method.bound(self.process)
        self.notes: dict[str, Any] = {}
        self.words: Words | None = None  # of the corpus it was trained on
        self.sampling: SamplingKeywords = {}  # recommended: steps, sampler, temperature and top_p where the user gives none
        self.card = ""  # what there is to know about it, in Markdown

    @staticmethod
    def build(
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
    ) -> "Model":
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
            return Model(entry, codec, network, length, names, whole_texts)
        needed = needed_fields(entry, codec.vocab, length, len(names), codec.grid, codec.channels)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            built = build_network(network, needed, sized(size, width, depth, heads))
        return Model(entry, codec, built, length, names, whole_texts)

    def save(self, path: str | Path, dtype: str | None = None) -> None:
        """Write the folder `path`: config.json, model.safetensors and codec files, each whole or not at all.

        dtype: of the weights in the file, float32, float16, bfloat16 or int8; as they are by default.
        """
        io.save(self, Path(path), dtype=dtype)

    @staticmethod
    def load(path: str | Path) -> "Model":
        """A saved model from its folder, or a bundled one by its name."""
        return io.load(path)

    def config(self) -> dict[str, Any]:
        """What config.json holds."""
        return io.config_of(self)

    def weights(self) -> dict[str, Tensor]:
        """Everything learned: the network's weights, and the process's if its schedule is learned."""
        named = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        return named | {f"process.{name}": value for name, value in self.process.state_dict().items()}

    def to(self, device: str | torch.device) -> "Model":
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
        return (
            f"Model({self.method.name}, {self.codec!r}, {type(self.network).__name__} with {self.num_parameters:,} parameters, "
            f"length={self.length}{f', labels={list(self.labels)}' if self.labels else ''})"
        )

    def texts(self, source: Source, split: str) -> Texts:
        """A split of a source as this model reads it."""
        cut: Cut = "sentences" if self.process.variable_length else "whole" if self.whole_texts else "windows"
        texts = source.texts(self.codec, split, self.length, cut)
        if cut != "whole" or self.method.stops_at_end or self.codec.end is None:
            return texts
        return FilledTexts(texts, self.codec.end, self.length)

    # ---- writing -----------------------------------------------------------------------------------------------------

    def generate(
        self, n: int = 1, length: int | None = None, on_step: OnStep | None = None, **options: Unpack[SamplingKeywords]
    ) -> list[str]:
        """n new texts of `length` tokens (at most, where the model chooses the length); for the rest see `SamplingOptions`.

        on_step gets every state of the first text, as `chain` yields them.
        """
        return generate.write(self, self.template(None, length), n, length, self.sampling_options(options), on_step)

    def chain(
        self, length: int | None = None, template: str | None = None, row: int = 0, **options: Unpack[SamplingKeywords]
    ) -> Iterator[Step]:
        """A text as it emerges, state by state; with `template`, the infilling of that. row: which of those that `generate`
        (or `infill`) writes with the same options."""
        before, rows = None, range(row, row + 1)
        for frame in generate.frames(self, self.template(template, length), rows, length, self.sampling_options(options)):
            yield generate.shown_step(self, frame, before)
            before = frame

    def stream(
        self, prefix: str = "", length: int | None = None, row: int = 0, **options: Unpack[SamplingKeywords]
    ) -> Iterator[str]:
        """A text that begins as given, piece by piece: token by token for ar, block by block for bd3lm, all at once for methods
        that write everywhere at a time. row: which of those that `complete` writes with the same options."""
        template = self.completion(prefix, "", length)
        return generate.stream(self, template, row, length or self.length, self.sampling_options(options))

    def infill(self, text: str, n: int = 1, length: int | None = None, **options: Unpack[SamplingKeywords]) -> list[str]:
        """n variants of a text with each [MASK] replaced by one token, each [GAP] by as many as the model likes, and each
        [WORD] by a word.

        The rest comes back unchanged. [GAP] is for methods of variable length; `length` then limits the whole. Of a text with
        [WORD]s these are not draws, but its n likeliest variants (fewer where there are not so many), by `fill`.
        """
        chosen = self.sampling_options(options)
        if WORD not in text:
            return generate.write(self, self.template(text), n, length, chosen)
        filling = self.filling(text, chosen.label, chosen.guidance).finished()
        return [filling.text(words) for words, _ in filling.ways(n)]

    def fill(self, text: str, most: int = 5, label: int | str | None = None, guidance: float = 1.0) -> list[list[Candidate]]:
        """For each [WORD] of a text its likeliest words, at most `most`: pairs of the word and its probability.

        The model chooses the length of a word too. Probabilities are the model's own, normalised over the words that were
        considered, of which these are the first. Several marks are filled one after another, the surest first. For models of
        masked noise, ar, and flexmdm, where a probability is the share of what it draws.
        """
        if most < 1:
            raise ValueError(f"the number of candidates must be ≥ 1, found {most}")
        return Filling(self, text, label, guidance).finished().candidates(most)

    def filling(self, text: str, label: int | str | None = None, guidance: float = 1.0) -> Filling:
        """The same, mark by mark; a text with [WORD]s has no [MASK] and no [GAP]."""
        if BLANKS.search(text):
            raise ValueError(f"fill in each {WORD} first, then {MASK} and {GAP}: a text cannot have both here")
        return Filling(self, text, label, guidance)

    @cached_property
    def word_tokens(self) -> WordTokens:
        """Which tokens of the codec make words."""
        return WordTokens.of(self.codec)

    def complete(
        self,
        prefix: str = "",
        suffix: str = "",
        length: int | None = None,
        n: int = 1,
        **options: Unpack[SamplingKeywords],
    ) -> list[str]:
        """n texts of `length` tokens (at most, where the model chooses the length) that begin and end as given."""
        template = self.completion(prefix, suffix, length)
        return generate.write(self, template, n, length or self.length, self.sampling_options(options))

    def draw(
        self,
        n: int = 1,
        given: np.ndarray | None = None,
        known: np.ndarray | None = None,
        on_step: OnStep | None = None,
        **options: Unpack[SamplingKeywords],
    ) -> np.ndarray:
        """n images [n, H, W(, C)] uint8. given: an image of which the pixels `known` (bool, the same shape) are kept.

        on_step gets every state of the first image.
        """
        if not isinstance(self.codec, Pixels):
            raise ValueError("this is a model of text: use generate")
        tokens = np.full(self.length, -1) if given is None else self.codec.encode_image(given)
        if known is not None:
            tokens = np.where(known.reshape(-1), tokens, -1)
        template = Template([], [], tokens.tolist())
        images = generate.paint(self, self.codec, template, n, self.sampling_options(options), on_step)
        return np.stack(images)

    def template(self, text: str | None = None, length: int | None = None) -> Template:
        """What is to be written: a text with [MASK]s and [GAP]s, or nothing given but a length."""
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
        tokens = sum(token != OPEN for token in template.given)
        if tokens > self.length:
            raise ValueError(f"this model reads texts of at most {self.length} tokens, found {tokens}")
        return template

    def completion(self, prefix: str = "", suffix: str = "", length: int | None = None) -> Template:
        """What `complete` fills in."""
        longest = self.length if length is None else length
        given = len(self.codec.encode_before(prefix)) + len(self.codec.encode(suffix))
        if longest <= given:
            raise ValueError(f"prefix and suffix have {given} tokens: nothing is left to write in a length of {longest}")
        self._check_length(longest)
        blanks = self.process.blank(1, longest - given)[0].tolist()
        return Template.between(prefix, blanks, suffix, self.codec)

    def _check_length(self, length: int) -> None:
        if not 1 <= length <= self.length:
            raise ValueError(f"this model writes texts of 1 to {self.length} tokens, found a length of {length}")

    def fills_exactly(self, template: Template) -> bool:
        """Whether filling this in draws from the model's own conditional (with enough steps), and is not a heuristic."""
        return generate.fills_exactly(self, template)

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

    def sampling_options(self, options: SamplingKeywords) -> SamplingOptions:
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

    # ---- measuring and correcting ---------------------------------------------------------------------------------------

    def candidates(self, ids: Sequence[int], place: int, t: float, most: int = 8) -> list[tuple[str, float]]:
        """What could stand at one position of a text on its way (`Step.ids`) at time t, with probabilities, likeliest first."""
        return generate.candidates(self, list(ids), place, t, most)

    def correct(self, text: str, strength: float = 0.5, keep: Collection[str] = ()) -> Correction:
        """The text with its spelling corrected, and each edit with its confidence; words in `keep` are never touched.

        strength: 0 changes nothing, 1 takes the likeliest candidate always.
        """
        return Speller(self, self.words).correct(text, strength, keep)

    def score(
        self,
        text: str | Sequence[str],
        samples: int = likelihood.SCORE_DRAWS,
        seed: int = 0,
        error: float = likelihood.SCORE_ERROR,
    ) -> Score:
        """−log p of a text, or of several together; a longer text than the model's is scored in windows.

        samples: draws of the bound, at most. error: it stops earlier at this standard error, in bits per character.
        """
        return likelihood.score(self, [text] if isinstance(text, str) else list(text), samples, seed, error)

    def nats(self, x: Tensor, draws: int = 1, seed: int = 0) -> Tensor:
        """Draws of the bound for each sequence: x [B, L] → [draws, B] float64."""
        return likelihood.nats(self, x, draws, seed)

    def bits_per_char(
        self, texts: Texts, windows: int | None, draws: int, seed: int = 0, error: float = 0.0
    ) -> likelihood.BitsPerChar:
        """Bits per character (or dimension) over at most so many of the texts, with its standard errors."""
        return likelihood.bits_per_char(self, texts, windows, draws, seed, error)


def needed_fields(
    method: Method, vocab: int, length: int, labels: int = 0, grid: tuple[int, ...] = (), channels: int = 1
) -> dict[str, Any]:
    """The fields of a network's configuration that the method, the codec and the labels decide."""
    process = method.process(vocab)
    if process.variable_length and grid:
        raise ValueError(f"{method.name} writes texts of variable length, and an image has a fixed one: use another method")
    data = {"labels": labels, "grid": grid, "channels": channels}
    return data | method.parameterization.network_config(process, length, method.time_free)

"""The object people use: codec, network and method in one, with the verbs they want.

A saved model is a folder: `config.json` (method, sizes, codec), `model.safetensors` and, where needed, codec files. Nothing
in it is unpickled.
"""

import itertools
import json
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from unnoise.data import Codec, Pixels, codec as make_codec, codec_from
from unnoise.data.texts import PAD, Texts
from unnoise.denoiser import clean_at
from unnoise.files import write_atomically
from unnoise.method_table import SAMPLERS, Method, method as method_named, named_sampler
from unnoise.network.transformer import Shape, Transformer, sized
from unnoise.objective import Objective
from unnoise.process import Masked
from unnoise.process.base import LATEST, Process
from unnoise.process.insertion import OPEN
from unnoise.sampler import Frame, Sampler, chain
from unnoise.saved import CONFIG as CONFIG, WEIGHTS, read_config, read_weights
from unnoise.spelling import FILE as WORDS, Correction, Speller, Words
from unnoise.template import GAP, MASK, Template

BUNDLED = Path(__file__).parent / "models"
TEXTS = 100_000  # written at once, at most
STRONGEST = 100  # guidance
ROWS = 32  # sequences evaluated at once when scoring


class Step(NamedTuple):
    """One moment of a chain: the time, the text with masks shown as ·, and for each token of it a confidence, how it is
    shown, whether it is new, its number, and which entry of the template it belongs to."""

    t: float
    text: str
    confidences: list[float]
    tokens: list[str]
    fresh: list[bool]
    ids: list[int]
    places: list[int]


@dataclass(frozen=True)
class Writing:
    """How to write: network calls, at most; a sampler's name (see `SAMPLERS`; the method's own by default); the shaping of
    the network's distribution; the seed; the class of what is written, and how much it is insisted on (guidance)."""

    steps: int = 128
    sampler: str | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    label: int | None = None
    guidance: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"a seed must lie between 0 and 2^63, found {self.seed}")
        if not abs(self.guidance) <= STRONGEST:
            raise ValueError(f"guidance must lie between -{STRONGEST} and {STRONGEST}, found {self.guidance}")
        if self.guidance != 1 and self.label is None:
            raise ValueError("guidance insists on a label: give one")

    @property
    def keeps_law(self) -> bool:
        """Whether the distribution that is drawn from is the network's own, and the sampler keeps it."""
        plain = self.temperature == self.top_p == self.guidance == 1
        return plain and (self.sampler is None or SAMPLERS[self.sampler].keeps_law)


@dataclass(frozen=True)
class Score:
    """−log p(text), or a bound on it: nats in all, bits per character, the standard error of that figure.

    exact: whether it is −log p itself. windows: into how many pieces of the model's length the text was cut. read: the text as
    it was read, if the model's alphabet made another one of it (that one's characters are counted).
    """

    nats: float
    bits_per_char: float
    stderr: float
    exact: bool
    windows: int = 1
    characters: int = 0
    read: str | None = None


class Model:
    """A method with its network and codec."""

    def __init__(self, method: Method, codec: Codec, shape: Shape):
        self.method, self.codec, self.shape = method, codec, shape
        self.process = method.process(codec.vocab)
        self.network = Transformer(shape)
        self.denoiser = method.denoiser(self.network, self.process)
        self.bound: Objective = method.bound(self.process)
        self.notes: dict[str, Any] = {}
        self._serves: dict[str, bool] = {}  # samplers that were tried
        self.words: Words | None = None  # of the corpus it was trained on

    # ---- making, saving, loading -------------------------------------------------------------------------------------

    @staticmethod
    def build(
        method: str,
        codec: Codec | str = "text8",
        length: int = 256,
        size: str = "tiny",
        width: int | None = None,
        depth: int | None = None,
        heads: int | None = None,
        seed: int = 0,
        labels: int = 0,
    ) -> "Model":
        """An untrained model; `size` is one dial (nano, tiny, small, base), width, depth and heads override it.

        labels: how many classes texts can be said to have.
        """
        entry = method_named(method)
        codec = make_codec(codec) if isinstance(codec, str) else codec
        default = sized(size)
        process = entry.process(codec.vocab)
        if process.variable and codec.grid:
            raise ValueError(f"{method} writes texts of variable length, and an image has a fixed one: use another method")
        shape = Shape(
            inputs=process.inputs,
            outputs=codec.vocab,
            length=length + process.around,
            width=default[0] if width is None else width,
            depth=default[1] if depth is None else depth,
            heads=default[2] if heads is None else heads,
            time=not entry.time_free,
            causal=entry.denoiser.causal,
            every=default[3],
            gaps=entry.denoiser.gaps,
            labels=labels,
            grid=() if entry.denoiser.causal else codec.grid,
            channels=codec.channels,
        )
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return Model(entry, codec, shape)

    def weights(self) -> dict[str, Tensor]:
        """Everything learned: the network's weights, and the process's if its schedule is learned."""
        named = {f"network.{name}": value for name, value in self.network.state_dict().items()}
        return named | {f"process.{name}": value for name, value in self.process.state_dict().items()}

    def load_weights(self, weights: dict[str, Tensor]) -> None:
        """Put weights in, or ValueError naming the first that is missing, unknown or of the wrong shape."""
        mine = self.weights()
        for name in sorted(mine.keys() | weights.keys()):
            if name not in weights or name not in mine:
                raise ValueError(f"the weight {name} is {'missing' if name not in weights else 'unknown to this model'}")
            if weights[name].shape != mine[name].shape:
                raise ValueError(f"the weight {name} has shape {list(weights[name].shape)}, not {list(mine[name].shape)}")
        with torch.no_grad():
            for name, value in mine.items():
                value.copy_(weights[name])

    def config(self) -> dict[str, Any]:
        """What config.json holds."""
        return {
            "format": "unnoise-1",
            "method": self.method.name,
            "codec": self.codec.config(),
            "network": asdict(self.shape),
            "notes": self.notes,
        }

    def save(self, path: str | Path) -> None:
        """Write the folder `path`; each file is there whole or not at all."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.codec.save(folder)
        if self.words is not None:
            self.words.save(folder / WORDS)
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.weights().items()}
        write_atomically(folder / WEIGHTS, save(tensors))
        write_atomically(folder / CONFIG, (json.dumps(self.config(), indent=2, ensure_ascii=False) + "\n").encode())

    @staticmethod
    def load(path: str | Path) -> "Model":
        """A saved model from its folder."""
        folder = Path(path)
        config = read_config(folder)
        try:
            entry, shape = method_named(config["method"]), Shape(**config["network"])
            model = Model(entry, codec_from(config["codec"], folder), shape)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{folder / CONFIG} does not describe a model of this version of unnoise ({error})") from error
        try:
            model.load_weights(read_weights(folder / WEIGHTS))
        except ValueError as error:
            raise ValueError(f"{folder / WEIGHTS} does not fit {CONFIG}: {error}") from error
        model.notes = config.get("notes", {})
        if (folder / WORDS).exists():
            model.words = Words.load(folder / WORDS)
        model.network.eval()
        return model

    def to(self, device: str | torch.device) -> "Model":
        """This model, moved."""
        self.network.to(device)
        self.process.to(device)
        return self

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.network.device

    @property
    def length(self) -> int:
        """The longest text, in tokens."""
        return self.shape.length - self.process.around

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return sum(value.numel() for value in self.weights().values())

    # ---- writing -----------------------------------------------------------------------------------------------------

    def generate(
        self, n: int = 1, length: int | None = None, on_step: Callable[[Step], None] | None = None, **how: Any
    ) -> list[str]:
        """n new texts of `length` tokens (at most, where the model chooses the length); for the rest see `Writing`.

        on_step is told every canvas of the first text, as `chain` yields them.
        """
        return self._write(self.template(None, length), n, length, Writing(**how), on_step)

    def chain(self, n: int = 1, length: int | None = None, template: str | None = None, **how: Any) -> Iterator[Step]:
        """The first of n texts as it emerges, canvas by canvas; with `template`, the infilling of that."""
        before: Frame | None = None
        for frame in self._frames(self.template(template, length), n, length, Writing(**how)):
            yield self._step(frame, before)
            before = frame

    def infill(self, text: str, n: int = 1, length: int | None = None, **how: Any) -> list[str]:
        """n variants of a text with each [MASK] replaced by one token, and each [GAP] by as many as the model likes.

        The rest comes back unchanged. [GAP] is for methods of variable length; `length` then limits the whole.
        """
        return self._write(self.template(text), n, length, Writing(**how))

    def fills_exactly(self, template: Template) -> bool:
        """Whether filling this in draws from the model's own conditional (with enough steps), and is not a heuristic.

        A masked model's always does; left to right it does where all that is given comes first.
        """
        known = [token >= 0 for token in template.given]
        return isinstance(self.process, Masked) or (self.denoiser.causal and known == sorted(known, reverse=True))

    def complete(self, prefix: str = "", suffix: str = "", length: int | None = None, n: int = 1, **how: Any) -> list[str]:
        """n texts of `length` tokens (at most, where the model chooses the length) that begin and end as given."""
        return self._write(self.completion(prefix, suffix, length), n, length or self.length, Writing(**how))

    def completion(self, prefix: str = "", suffix: str = "", length: int | None = None) -> Template:
        """What `complete` fills in."""
        longest = self.length if length is None else length
        given = len(self.codec.encode(prefix)) + len(self.codec.encode(suffix))
        if longest <= given:
            raise ValueError(f"prefix and suffix have {given} tokens: nothing is left to write in a length of {longest}")
        self._check_length(longest)
        blanks = self.process.blank(1, longest - given)[0].tolist()
        return Template.between(prefix, blanks, suffix, self.codec)

    def draw(
        self,
        n: int = 1,
        given: np.ndarray | None = None,
        known: np.ndarray | None = None,
        on_step: Callable[[Step], None] | None = None,
        **how: Any,
    ) -> np.ndarray:
        """n images [n, H, W(, C)] uint8. given: an image of which the pixels `known` (bool, the same shape) are kept.

        on_step is told every canvas of the first image.
        """
        if not isinstance(self.codec, Pixels):
            raise ValueError("this is a model of text: use generate")
        tokens = np.full(self.length, -1) if given is None else self.codec.encode_image(given)
        if known is not None:
            tokens = np.where(known.reshape(-1), tokens, -1)
        last = self._last(Template([], [], tokens.tolist()), n, None, Writing(**how), on_step)
        return np.stack([self.codec.decode_image(row) for row in last.x.cpu().numpy()])

    def _check_length(self, length: int) -> None:
        if not 1 <= length <= self.length:
            raise ValueError(f"this model writes texts of 1 to {self.length} tokens, found a length of {length}")

    def template(self, text: str | None = None, length: int | None = None) -> Template:
        """What is to be written: a text with [MASK]s and [GAP]s, or nothing given but a length."""
        if text is None:
            length = self.length if length is None else length
            self._check_length(length)
            return Template.between("", self.process.blank(1, length)[0].tolist(), "", self.codec)
        if GAP in text and not self.process.variable:
            raise ValueError(
                f"{GAP} stands for any number of tokens, which {self.method.name} cannot choose: use {MASK} for each token, "
                "or a model of variable length (flexmdm)"
            )
        template = Template.parse(text, self.codec)
        tokens = sum(token != OPEN for token in template.given)
        if tokens > self.length:
            raise ValueError(f"this model reads texts of at most {self.length} tokens, found {tokens}")
        return template

    @cached_property
    def samplers(self) -> list[str]:
        """The names of the samplers that can serve this model."""
        return [name for name in SAMPLERS if self._writes_with(name)]

    @property
    def own_sampler(self) -> str:
        """What the method's own sampler is called."""
        mine = type(self.method.sampler(1))
        return next((name for name, sampler in SAMPLERS.items() if sampler is mine), mine.__name__)

    def check_sampler(self, name: str) -> None:
        """ValueError, with those that can, unless the sampler of this name can serve this model."""
        named_sampler(name, 1)
        if not self._writes_with(name):
            raise ValueError(f"{self.method.name} cannot write with {name}: use one of {', '.join(self.samplers)}")

    def _writes_with(self, name: str) -> bool:
        """Whether a sampler can serve this model; tried once, not guessed: it takes its first step."""
        if name not in self._serves:
            self._serves[name] = self._tried(name)
        return self._serves[name]

    def _tried(self, name: str) -> bool:
        length = self.length if self.codec.grid else 1
        given = self.process.blank(1, length)
        try:
            steps = chain(self.process, self.denoiser, batch=1, length=length, sampler=named_sampler(name, 1), given=given)  # pyright: ignore[reportArgumentType]
            return len(list(itertools.islice(steps, 2))) == 2
        except ValueError:
            return False

    def _sampler(self, how: Writing) -> Sampler:
        if how.sampler is not None:
            self.check_sampler(how.sampler)
            return named_sampler(how.sampler, how.steps, how.temperature, how.top_p)
        own = self.method.sampler(how.steps)
        return type(own)(**{**vars(own), "temperature": how.temperature, "top_p": how.top_p})

    def _frames(self, template: Template, n: int, length: int | None, how: Writing) -> Iterator[Frame]:
        if n < 1:
            raise ValueError(f"the number of samples must be ≥ 1, found {n}")
        if n > TEXTS:
            raise ValueError(f"at most {TEXTS} samples can be drawn at once, found {n}")
        if how.label is not None and how.label >= self.shape.labels > 0:
            raise ValueError(f"labels go from 0 to {self.shape.labels - 1}, found {how.label}")
        given = torch.tensor([template.given]).expand(n, -1).contiguous()
        sampler = self._sampler(how)
        self.network.eval()
        yield from chain(
            self.process,
            self.denoiser.condition(how.label, how.guidance),  # pyright: ignore[reportArgumentType]
            batch=n,
            length=(length or self.length) if self.process.variable else given.shape[1],
            sampler=sampler,
            given=given,
            seed=how.seed,
            time_free=self.method.time_free,
        )

    def _write(
        self,
        template: Template,
        n: int,
        length: int | None,
        how: Writing,
        on_step: Callable[[Step], None] | None = None,
    ) -> list[str]:
        """The texts at the end of a chain, with the raw text that was given put back in its place."""
        last = self._last(template, n, length, how, on_step)
        results = []
        for row, places in zip(last.x.tolist(), _places(last).tolist(), strict=True):
            filled = [self.codec.decode([row[i] for i in positions]) for positions in template.filled(places)]
            results.append(template.woven(filled))
        return results

    def _last(
        self, template: Template, n: int, length: int | None, how: Writing, on_step: Callable[[Step], None] | None
    ) -> Frame:
        """The end of a chain, whose canvases on_step is told."""
        last: Frame | None = None
        for frame in self._frames(template, n, length, how):
            if on_step:
                on_step(self._step(frame, last))
            last = frame
        assert last is not None
        return last

    def _step(self, frame: Frame, before: Frame | None) -> Step:
        """The first text of a frame as it is shown."""
        fresh = frame.fresh
        if fresh is None:
            fresh = torch.zeros_like(frame.x, dtype=torch.bool) if before is None else frame.x != before.x
        real = frame.x[0] >= 0
        ids, confidences, new, places = (
            values[0][real].tolist() for values in (frame.x, frame.confidence, fresh, _places(frame).to(real.device))
        )
        tokens = self.codec.canvas(ids)
        return Step(frame.t, "".join(tokens), confidences, tokens, new, ids, places)

    # ---- reading -----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def candidates(self, ids: Sequence[int], place: int, t: float, most: int = 8) -> list[tuple[str, float]]:
        """What could stand at one position of a canvas (`Step.ids`) at time t, with probabilities, the likeliest first."""
        if not isinstance(self.process, Process):
            raise ValueError(f"{self.method.name} has no canvas of tokens to ask about")
        if not 0 <= place < len(ids) <= self.length:
            raise ValueError(f"there is no position {place} in a canvas of {len(ids)} tokens")
        x = torch.tensor([list(ids)], device=self.device)
        if int(x.min()) < 0 or int(x.max()) >= self.process.states:
            raise ValueError(f"a canvas of this model holds tokens 0…{self.process.states - 1}")
        where = torch.zeros_like(x, dtype=torch.bool)
        where[0, place] = True
        at = torch.tensor([t], dtype=torch.float64, device=self.device).clamp(0, LATEST)
        self.network.eval()
        log_p = clean_at(self.denoiser, self.process, x, at, where)  # pyright: ignore[reportArgumentType]
        best = log_p.exp()[0].topk(min(most, self.codec.vocab))
        return [(self.codec.show(int(token)), float(p)) for p, token in zip(best.values, best.indices, strict=True)]

    def correct(self, text: str, strength: float = 0.5, keep: Collection[str] = ()) -> Correction:
        """The text with its spelling corrected, and each edit with its confidence; words in `keep` are never touched.

        strength: 0 changes nothing, 1 takes the likeliest reading always.
        """
        if self.words is None:
            raise ValueError(f"this model has no list of words ({WORDS}) beside it, so it cannot correct spelling")
        return Speller(self, self.words).correct(text, strength, keep)

    # ---- measuring ---------------------------------------------------------------------------------------------------

    def score(self, text: str | Sequence[str], samples: int = 32, seed: int = 0) -> Score:
        """−log p of a text, or of several together; a longer text than the model's is scored in windows."""
        texts = [text] if isinstance(text, str) else list(text)
        if samples < 2 and not self.method.exact:
            raise ValueError(f"an error bar needs at least 2 samples, found {samples}")
        pieces: dict[int, list[np.ndarray]] = {}
        read = []
        for one in texts:
            tokens = self.codec.encode(one)
            read.append(self.codec.decode(tokens))
            for start in range(0, len(tokens), self.length):
                piece = tokens[start : start + self.length]
                pieces.setdefault(len(piece), []).append(piece)
        if not pieces:
            raise ValueError("there is no text to score")
        draws = torch.zeros(1 if self.method.exact else samples, dtype=torch.float64)
        for length, group in sorted(pieces.items()):
            x = torch.from_numpy(np.stack(group)).to(self.device)
            draws += self.nats(x, len(draws), seed + length).sum(1)
        spread = float(draws.std() / len(draws) ** 0.5) if len(draws) > 1 else 0.0
        characters = sum(map(len, read))
        bits = characters * np.log(2)
        return Score(
            float(draws.mean()),
            float(draws.mean() / bits),
            float(spread / bits),
            self.method.exact,
            windows=sum(map(len, pieces.values())),
            characters=characters,
            read=None if read == texts else "\n".join(read),
        )

    @torch.no_grad()
    def nats(self, x: Tensor, draws: int = 1, seed: int = 0) -> Tensor:
        """Draws of the bound for each sequence: x [B, L] → [draws, B] float64."""
        self.network.eval()
        generator = torch.Generator(self.device).manual_seed(seed)
        out = torch.zeros(draws, len(x), dtype=torch.float64)
        # rows of all draws together, so that the times are stratified over a text's draws as well as over texts
        rows = x.repeat(draws, 1)
        for start in range(0, len(rows), ROWS):
            out.view(-1)[start : start + ROWS] = self.bound(self.denoiser, rows[start : start + ROWS], generator).double().cpu()
        return out

    def bits_per_char(self, texts: Texts, windows: int | None, draws: int, seed: int = 0) -> tuple[float, float]:
        """Bits per character (or dimension) over at most so many of the texts, and the standard error:

        nats a token / (log 2 · characters a token).
        """
        scale = 1 / (math.log(2) * texts.characters)
        nats, error = self.evaluate(texts.windows(windows), draws, seed)
        return nats * scale, error * scale

    def evaluate(self, x: Tensor, draws: int = 1, seed: int = 0) -> tuple[float, float]:
        """Nats per token over texts x [N, L], padded with −1, and the standard error of that ratio over the texts."""
        nats = self.nats(x.to(self.device), 1 if self.method.exact else draws, seed).mean(0)
        tokens = (x != PAD).sum(1).double().cpu()
        ratio = nats.sum() / tokens.sum()
        return float(ratio), float((nats - ratio * tokens).std() * len(x) ** 0.5 / tokens.sum())


def _places(frame: Frame) -> Tensor:
    """Which entry of the template each position belongs to; its own number, where texts do not grow: [B, L]."""
    return torch.arange(frame.x.shape[1]).expand(frame.x.shape) if frame.place is None else frame.place


def load(path: str | Path) -> Model:
    """A saved model from its folder, or a bundled one by its name ("wiki")."""
    bundled = BUNDLED / path
    return Model.load(bundled if (bundled / CONFIG).exists() else path)

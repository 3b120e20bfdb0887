"""The object people use: codec, network and method in one, with the verbs they want.

A saved model is a folder: `config.json` (method, sizes, codec), `model.safetensors` and, where needed, codec files. Nothing
in it is unpickled.
"""

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from unnoise.data import Codec, codec as make_codec, codec_from
from unnoise.data.corpus import windows, write_atomically
from unnoise.method_table import Method, method as method_named, named_sampler
from unnoise.network.transformer import SIZES, Shape, Transformer
from unnoise.objective import Objective
from unnoise.sampler import Frame, Sampler, chain

MASK = "[MASK]"
BLANK = "·"  # how a mask is shown
CONFIG, WEIGHTS = "config.json", "model.safetensors"
ROWS = 32  # sequences evaluated at once when scoring


class Step(NamedTuple):
    """One moment of a chain: the time, the text with masks shown as ·, and a confidence for each token of it."""

    t: float
    text: str
    confidences: list[float]
    tokens: list[str]


@dataclass(frozen=True)
class Score:
    """−log p(text), or a bound on it: nats in all, bits per character, the standard error of that figure.

    exact: whether it is −log p itself. windows: into how many pieces of the model's length the text was cut.
    """

    nats: float
    bits_per_char: float
    stderr: float
    exact: bool
    windows: int = 1
    characters: int = 0


class Model:
    """A method with its network and codec."""

    def __init__(self, method: Method, codec: Codec, shape: Shape):
        self.method, self.codec, self.shape = method, codec, shape
        self.process = method.process(codec.vocab)
        self.network = Transformer(shape)
        self.denoiser = method.denoiser(self.network, self.process)
        self.bound: Objective = method.bound(self.process)
        self.notes: dict[str, Any] = {}

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
    ) -> "Model":
        """An untrained model; `size` is one dial (nano, tiny, small, base), width, depth and heads override it."""
        if size not in SIZES:
            raise ValueError(f"unknown size {size!r}: use one of {', '.join(SIZES)}")
        entry = method_named(method)
        codec = make_codec(codec) if isinstance(codec, str) else codec
        default = SIZES[size]
        inputs = entry.process(codec.vocab).inputs
        shape = Shape(
            inputs=inputs,
            outputs=codec.vocab,
            length=length,
            width=default[0] if width is None else width,
            depth=default[1] if depth is None else depth,
            heads=default[2] if heads is None else heads,
            time=not entry.time_free,
            causal=entry.denoiser.causal,
            every=default[3],
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
        tensors = {name: value.detach().cpu().contiguous() for name, value in self.weights().items()}
        write_atomically(folder / WEIGHTS, save(tensors))
        write_atomically(folder / CONFIG, (json.dumps(self.config(), indent=2, ensure_ascii=False) + "\n").encode())

    @staticmethod
    def load(path: str | Path) -> "Model":
        """A saved model from its folder."""
        folder = Path(path)
        config = _read_config(folder)
        try:
            entry, shape = method_named(config["method"]), Shape(**config["network"])
            model = Model(entry, codec_from(config["codec"], folder), shape)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{folder / CONFIG} does not describe a model of this version of unnoise ({error})") from error
        try:
            model.load_weights(_read_weights(folder / WEIGHTS))
        except ValueError as error:
            raise ValueError(f"{folder / WEIGHTS} does not fit {CONFIG}: {error}") from error
        model.notes = config.get("notes", {})
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
        return self.shape.length

    @property
    def parameters(self) -> int:
        """How many numbers are learned."""
        return sum(value.numel() for value in self.weights().values())

    # ---- writing -----------------------------------------------------------------------------------------------------

    def generate(
        self,
        n: int = 1,
        length: int | None = None,
        steps: int = 128,
        sampler: str | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[str]:
        """n new texts. `sampler` is a name (see `SAMPLERS`), the method's own by default."""
        if n < 1:
            raise ValueError(f"the number of samples must be ≥ 1, found {n}")
        given = self._blank_canvas(n, length)
        return [self.codec.decode(row) for row in self._final(given, steps, sampler, temperature, top_p, seed).tolist()]

    def chain(
        self,
        n: int = 1,
        length: int | None = None,
        steps: int = 128,
        sampler: str | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        seed: int = 0,
        template: str | None = None,
    ) -> Iterator[Step]:
        """The first of n texts as it emerges, canvas by canvas; with `template`, the infilling of that."""
        given = self._blank_canvas(n, length) if template is None else self._template(template)[0].expand(n, -1)
        for frame in self._frames(given, steps, sampler, temperature, top_p, seed):
            tokens = [BLANK if token >= self.codec.vocab else self.codec.show(token) for token in frame.x[0].tolist()]
            yield Step(frame.t, "".join(tokens), frame.confidence[0].tolist(), tokens)

    def infill(
        self,
        text: str,
        n: int = 1,
        steps: int = 128,
        sampler: str | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[str]:
        """n variants of a text with each [MASK] replaced by one token; the rest comes back unchanged."""
        given, pieces = self._template(text)
        rows = self._final(given.expand(n, -1).contiguous(), steps, sampler, temperature, top_p, seed)
        results = []
        for row in rows.tolist():
            blanks = [token for token, known in zip(row, given[0].tolist(), strict=True) if known < 0]
            filled, used = pieces[0][0], 0
            for before, (piece, _) in itertools.pairwise(pieces):
                filled += self.codec.decode(blanks[used : used + before[1]]) + piece
                used += before[1]
            results.append(filled)
        return results

    def complete(
        self,
        prefix: str = "",
        suffix: str = "",
        length: int | None = None,
        n: int = 1,
        steps: int = 128,
        sampler: str | None = None,
        temperature: float = 1.0,
        top_p: float = 1.0,
        seed: int = 0,
    ) -> list[str]:
        """n texts of `length` tokens that begin with prefix and end with suffix."""
        length = self.length if length is None else length
        around = len(self.codec.encode(prefix)) + len(self.codec.encode(suffix))
        if around >= length:
            raise ValueError(f"prefix and suffix have {around} tokens: nothing is left to write in a length of {length}")
        return self.infill(prefix + MASK * (length - around) + suffix, n, steps, sampler, temperature, top_p, seed)

    def _blank_canvas(self, n: int, length: int | None) -> Tensor:
        length = self.length if length is None else length
        if not 1 <= length <= self.length:
            raise ValueError(f"this model writes texts of 1 to {self.length} tokens, found a length of {length}")
        return torch.full((n, length), -1)

    def _template(self, text: str) -> tuple[Tensor, list[tuple[str, int]]]:
        """A text with [MASK]s → given [1, L], −1 where blank, and the pieces of raw text with the blanks after each."""
        runs = re.split(rf"((?:{re.escape(MASK)})+)", text)
        if len(runs) == 1:
            raise ValueError(f"nothing to fill in: mark each blank token with {MASK}")
        tokens: list[int] = []
        pieces: list[tuple[str, int]] = []
        for piece, marks in zip(runs[::2], [*runs[1::2], ""], strict=True):
            blanks = len(marks) // len(MASK)
            tokens += [*self.codec.encode(piece).tolist(), *[-1] * blanks]
            pieces.append((piece, blanks))
        if len(tokens) > self.length:
            raise ValueError(f"this model reads texts of at most {self.length} tokens, found {len(tokens)}")
        return torch.tensor([tokens]), pieces

    def _sampler(self, name: str | None, steps: int, temperature: float, top_p: float) -> Sampler:
        if name is not None:
            return named_sampler(name, steps, temperature, top_p)
        own = self.method.sampler(steps)
        return type(own)(**{**vars(own), "temperature": temperature, "top_p": top_p})

    def _frames(
        self, given: Tensor, steps: int, sampler: str | None, temperature: float, top_p: float, seed: int
    ) -> Iterator[Frame]:
        chosen = self._sampler(sampler, steps, temperature, top_p)
        self.network.eval()
        batch, length = given.shape
        yield from chain(
            self.process,
            self.denoiser,
            batch=batch,
            length=length,
            sampler=chosen,
            given=given.contiguous(),
            seed=seed,
            time_free=self.method.time_free,
        )

    def _final(self, given: Tensor, steps: int, sampler: str | None, temperature: float, top_p: float, seed: int) -> Tensor:
        x = given
        for frame in self._frames(given, steps, sampler, temperature, top_p, seed):
            x = frame.x
        return x

    # ---- measuring ---------------------------------------------------------------------------------------------------

    def score(self, text: str | Sequence[str], samples: int = 32, seed: int = 0) -> Score:
        """−log p of a text, or of several together; a longer text than the model's is scored in windows."""
        texts = [text] if isinstance(text, str) else list(text)
        if samples < 2 and not self.method.exact:
            raise ValueError(f"an error bar needs at least 2 samples, found {samples}")
        pieces: dict[int, list[np.ndarray]] = {}
        characters = 0
        for one in texts:
            tokens = self.codec.encode(one)
            characters += len(one)
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
        bits = characters * np.log(2)
        count = sum(map(len, pieces.values()))
        return Score(
            float(draws.mean()), float(draws.mean() / bits), float(spread / bits), self.method.exact, count, characters
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

    def evaluate(self, tokens: Tensor, limit: int | None = None, draws: int = 1, seed: int = 0) -> tuple[float, float]:
        """Nats per token over a stream's windows, and its standard error over the windows."""
        x = windows(tokens, self.length, limit).to(self.device)
        each = self.nats(x, 1 if self.method.exact else draws, seed).mean(0) / self.length
        return float(each.mean()), float(each.std() / len(each) ** 0.5)


def _read_config(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise ValueError(f"there is no model in {folder}: give the folder that `unnoise train --out` wrote")
    if not (folder / CONFIG).exists():
        raise ValueError(f"{folder} holds no model: {CONFIG} is missing")
    try:
        config = json.loads((folder / CONFIG).read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{folder / CONFIG} is damaged: {error}") from error
    if not isinstance(config, dict) or config.get("format") != "unnoise-1":
        raise ValueError(f"{folder / CONFIG} is not a configuration that this version of unnoise reads")
    return config


def _read_weights(path: Path) -> dict[str, Tensor]:
    if not path.exists():
        pickled = [p.name for p in path.parent.iterdir() if p.suffix in (".pt", ".pth", ".bin", ".ckpt", ".pkl")]
        hint = f"; {pickled[0]} is a pickle, which unnoise does not open" if pickled else ""
        raise ValueError(f"{path} is missing{hint}")
    with open(path, "rb") as file:
        start = file.read(4)
    if start[:2] == b"PK" or start[:1] == b"\x80":
        raise ValueError("it is a pickle, which unnoise does not open; convert it to safetensors")
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ValueError(f"it is damaged or cut short ({error})") from error


def load(path: str | Path) -> Model:
    """A saved model from its folder."""
    return Model.load(path)

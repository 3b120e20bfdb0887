"""`unnoise generate`, `infill` and `complete`.

`unnoise generate` with several models: texts of the same seed in columns.
"""

import importlib.util
import io
import json
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from unnoise.cli.command_base import (
    Device,
    Json,
    ModelName,
    ModelNames,
    only_model,
    open_model,
    open_models,
    printable,
    say_read,
)
from unnoise.cli.workers import Workers, chosen_workers, run_together
from unnoise.model.sampling_options import SamplingOptions

if TYPE_CHECKING:
    from unnoise.model.generate import Step, Template
    from unnoise.model.model import Model


def write_side_by_side(command: "GenerateCommand") -> int:
    """Sample from each model, print a column for each, and return the exit code."""
    if given := [*command.single_model_options(), *(["--workers"] if command.workers != 1 else [])]:
        raise ValueError(f"texts of several models are printed side by side: leave out {given[0]}, or give one --model")
    models = open_models(command.model, command.device)
    for name, model in models.items():  # before any of them samples
        if model.codec.grid:
            raise ValueError(f"only texts are printed side by side, and {name} is a model of images: give it alone")
        model.check_sampler(model.sampling_options(command.options()).resolve(model.method.sampler))
    found = []
    for name, model in models.items():
        command.say_recommended(model, name)
        texts = model.generate(command.num_samples, command.length, **command.options())
        kept = command.follows_distribution(model)
        found.append({"model": name, "method": model.method.name, "texts": texts, "keeps_distribution": kept})
    if command.as_json:
        print(json.dumps({"models": found, "seed": command.seed}, ensure_ascii=False))
    else:
        print_columns([one["model"] for one in found], [one["texts"] for one in found])
    return 0


def print_columns(names: Sequence[str], texts: Sequence[Sequence[str]]) -> None:
    """Print texts with a column for each model and a row for each text."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_lines=True, expand=True, pad_edge=False)
    for name in names:
        table.add_column(Text(name), ratio=1, overflow="fold")
    for row in zip(*texts, strict=True):
        table.add_row(*(Text("\n".join(map(printable, text.split("\n")))) for text in row))
    Console().print(table)


Stream = Annotated[
    bool,
    arg(help="Print a sample while it is generated: token by token (ar), block by block (bd3lm), or all at once (others)."),
]


@dataclass(frozen=True, kw_only=True)
class WritingOptions(SamplingOptions):
    """Options of all sampling commands, except the model."""

    sampler: str | None = None
    label: str | None = None
    num_samples: Annotated[int, arg(help="Number of samples.")] = 2
    device: Device = "auto"
    as_json: Json = False

    def options(self) -> dict[str, Any]:
        """Return the sampling options as keywords of `Model.generate`."""
        return {field.name: vars(self)[field.name] for field in fields(SamplingOptions)}

    def _filled(self, model: "Model", given: str, template: "Template", texts: list[str]) -> int:
        """Print infilled texts, and on stderr whether infilling is a heuristic or the codec changed the given text."""
        from unnoise.model.generate import text_as_read

        exact = model.fills_exactly(template)
        if not exact and not self.as_json:
            print(f"infilling with {model.method.name} is a heuristic, not its exact conditional distribution", file=sys.stderr)
        read = text_as_read(given, model.codec)
        say_read(read)
        return self._show(model, texts, seed=self.seed, exact=exact and self.follows_distribution(model), read=read)

    def follows_distribution(self, model: "Model") -> bool:
        """Return whether samples with these options follow the model's own distribution."""
        return model.sampling_options(self.options()).keeps_distribution(model.method.sampler)

    def say_recommended(self, model: "Model", name: str = "") -> None:
        """Print which recommended options of the model are used, and the options that sample its own distribution."""
        from unnoise.sampler_table import named_sampler

        taken = SamplingOptions(**self.options()).applicable(model.sampling)
        if not taken or self.as_json:
            return
        plain = [f"--{name.replace('_', '-')} 1" for name in ("temperature", "top_p") if taken.get(name, 1) != 1]
        if "sampler" in taken and not named_sampler(taken["sampler"]).keeps_distribution:
            plain.insert(0, f"--sampler {model.own_sampler}")
        used = ", ".join(f"{name.replace('_', '-')} {value}" for name, value in taken.items())
        back = f" (to sample its own distribution: {' '.join(plain)})" if plain else ""
        print(f"using the recommended sampling options of {name or 'the model'}: {used}{back}", file=sys.stderr)

    def _stream(self, model: "Model", prefix: str, length: int | None) -> int:
        """Print texts while they are generated."""
        if self.as_json or model.codec.grid:
            raise ValueError("--stream prints texts while they are generated: leave out --json, and use a model of text")
        self.say_recommended(model)
        for row in range(self.num_samples):
            if self.num_samples > 1:
                print(f"--- {row + 1}")
            for piece in model.stream(prefix, length, row, **self.options()):
                print(piece, end="", flush=True)
            print()
        return 0

    def _show(self, model: "Model", texts: list[str], **more: object) -> int:
        self.say_recommended(model)
        if self.as_json:
            print(json.dumps({"method": model.method.name, "texts": texts, **more}, ensure_ascii=False))
            return 0
        for i, text in enumerate(texts):
            print(text if len(texts) == 1 else f"--- {i + 1}\n{text}")
        return 0


@dataclass(frozen=True, kw_only=True)
class WritingCommand(WritingOptions):
    """Options of a command that samples from one model."""

    model: ModelName = None


@dataclass(frozen=True, kw_only=True)
class GenerateCommand(WritingOptions):
    """Generate texts or images. With several models, print their texts side by side.

    Example: unnoise generate --model runs/first --num-samples 3 --watch
    """

    model: ModelNames = ()
    length: Annotated[
        int | None, arg(help="Number of tokens of a sample (flexmdm: the largest number); default: the model's length.")
    ] = None
    watch: Annotated[bool, arg(help="Show how the first sample emerges from noise.")] = False
    stream: Stream = False
    out: Annotated[Path | None, arg(help="Output file of a model of images, .png; default: samples.png.")] = None

    workers: Workers = 1

    def run(self) -> int:
        if self.stream and (given := [name for name in self.single_model_options() if name != "--stream"]):
            raise ValueError(f"--stream prints texts while they are generated: leave out {given[0]}")
        if len(self.model) > 1:
            return write_side_by_side(self)
        if self.stream:
            return self._stream(open_model(only_model(self.model, "unnoise generate"), self.device), "", self.length)
        workers = chosen_workers(self.workers, self.num_samples, self.as_json)
        return run_together(workers, self.device, self._write, self._finish)

    def single_model_options(self) -> list[str]:
        """Return the given options that show the samples of one model in another way. Applications extend this."""
        options = {"--watch": self.watch, "--stream": self.stream, "--out": self.out}
        return [name for name, value in options.items() if value]

    @property
    def keeps_chain(self) -> bool:
        """Whether the states of the chain are kept. Applications extend this."""
        return False

    def _write(self, device: str) -> "tuple[Model, list[Step], Any]":
        from unnoise import distributed
        from unnoise.cli.terminal import LiveChain
        from unnoise.files import check_writable

        model = open_model(only_model(self.model, "unnoise generate"), device)
        if self.out is not None and not model.codec.grid:
            raise ValueError("--out is for models of images; a model of text prints its samples")
        if model.codec.grid:
            check_writable(self._sheet, (".png",))
        if model.codec.grid and self.length is not None:
            raise ValueError("an image has the size of the training images: leave out --length")
        steps: list[Step] = []
        watched = self.watch and not self.as_json and distributed.rank() == 0
        with LiveChain() if watched else nullcontext() as chain:
            follow = chain or (steps.append if self.keeps_chain else None)
            if model.codec.grid:
                result: Any = model.draw(self.num_samples, on_step=follow, **self.options())
            else:
                result = model.generate(self.num_samples, self.length, on_step=follow, **self.options())
        return model, chain.steps if chain else steps, result

    def _finish(self, found: "tuple[Model, list[Step], Any]") -> int:
        model, _, result = found
        if model.codec.grid:
            self.say_recommended(model)
            return write_sheet(result, self._sheet, self.as_json)
        return self._show(model, result, seed=self.seed, keeps_distribution=self.follows_distribution(model))

    @property
    def _sheet(self) -> Path:
        return self.out or Path("samples.png")


@dataclass(frozen=True, kw_only=True)
class InfillCommand(WritingCommand):
    """Fill in the blanks of a text: [MASK] is one token, and [GAP] any number of tokens (flexmdm).

    Example: unnoise infill "the [MASK][MASK][MASK][MASK] of the people" --num-samples 3
    """

    text: Annotated[
        Positional[str],
        arg(metavar="TEXT", help="Text with [MASK] or [GAP] for the blanks."),
    ] = ""

    def run(self) -> int:
        from unnoise.model.generate import MARKS, WORD

        if not MARKS.search(self.text) and os.path.isfile(self.text):  # false too for a text that is too long for a path
            raise ValueError(
                f"{self.text} is a file, and infill takes a text: use unnoise fill {self.text} to fill in the {WORD}s of a file"
            )
        model = open_model(self.model, self.device)
        texts = model.infill(self.text, self.num_samples, **self.options())
        return self._filled(model, self.text, model.template(self.text), texts)


@dataclass(frozen=True, kw_only=True)
class CompleteCommand(WritingCommand):
    """Generate a text that begins with --prefix and ends with --suffix.

    Example: unnoise complete --prefix "my fellow citizens" --suffix "god bless america" --length 120
    """

    prefix: Annotated[str, arg(help="Beginning of the text.")] = ""
    suffix: Annotated[str, arg(help="End of the text.")] = ""
    length: Annotated[int | None, arg(help="Number of tokens of the whole text; default: the model's length.")] = None
    blanks: Annotated[int | None, arg(help="Number of tokens between prefix and suffix, instead of --length.")] = None
    stream: Stream = False

    def run(self) -> int:
        from unnoise.model.generate import GAP, MARKS, MASK, WORD, given_sides, text_as_read

        if MARKS.search(self.prefix + self.suffix):
            raise ValueError(
                f"complete generates the text between --prefix and --suffix: use infill for a text with {MASK}, {GAP} or {WORD}"
            )
        model = open_model(self.model, self.device)
        length = self.length
        if self.blanks is not None:
            if length is not None or self.blanks < 1:
                raise ValueError("give either --length or --blanks ≥ 1")
            length = sum(map(len, given_sides(self.prefix, self.suffix, model.codec))) + self.blanks
        if self.stream:
            if self.suffix:
                raise ValueError("--stream generates from left to right: leave out --suffix")
            say_read(text_as_read(self.prefix, model.codec))
            return self._stream(model, self.prefix, length)
        template = model.completion(self.prefix, self.suffix, length)
        texts = model.complete(self.prefix, self.suffix, length, self.num_samples, **self.options())
        given = f"{self.prefix}{GAP}{self.suffix}" if self.suffix else self.prefix
        return self._filled(model, given, template, texts)


def write_sheet(pictures: Any, out: Path, as_json: bool, columns: int = 10) -> int:
    """Write images as one PNG and print its name."""
    sheet(pictures, min(columns, len(pictures)), out)
    print(json.dumps({"out": str(out), "images": len(pictures)}) if as_json else f"wrote {out}: {len(pictures)} images")
    return 0


def sheet(pictures: Any, columns: int, path: Path) -> None:
    """Write images [N, H, W(, C)] as one enlarged PNG with `columns` images per row."""
    if importlib.util.find_spec("PIL") is None:
        raise ValueError("pictures need Pillow: pip install 'unnoise[images]'")
    import numpy as np
    from PIL import Image

    from unnoise.data.codec_names import coloured
    from unnoise.files import write_atomically

    colour = coloured(pictures, 4)
    n, height, width, _ = colour.shape
    scale = max(1, 48 // height)
    rows = -(-n // columns)
    page = np.full((rows * (height + 1) + 1, columns * (width + 1) + 1, 3), 128, dtype=np.uint8)
    for i, picture in enumerate(colour):
        top, left = (i // columns) * (height + 1) + 1, (i % columns) * (width + 1) + 1
        page[top : top + height, left : left + width] = picture
    large = np.repeat(np.repeat(page, scale, 0), scale, 1)
    content = io.BytesIO()
    Image.fromarray(large).save(content, format="PNG")
    write_atomically(path, content.getvalue())

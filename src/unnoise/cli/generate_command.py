"""The commands `unnoise generate`, `infill` and `complete`."""

import importlib.util
import io
import os
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from unnoise.cli.command_base import (
    Device,
    Json,
    ModelName,
    ModelNames,
    field_values,
    only_model,
    open_model,
    open_models,
    say_read,
    show_result,
)
from unnoise.cli.workers import Workers, chosen_workers, run_together
from unnoise.model.sampling_options import SamplingOptions

if TYPE_CHECKING:
    from unnoise.model.generate import Step, Template
    from unnoise.model.model import Model


Stream = Annotated[
    bool,
    arg(help="Print a sample during generation: token by token (ar), block by block (bd3lm), or at the end (other methods)."),
]


@dataclass(frozen=True, kw_only=True)
class SamplingCommand(SamplingOptions):
    """Options of all sampling commands, except the model."""

    sampler: str | None = None
    label: str | None = None
    num_samples: Annotated[int, arg(help="Number of samples.")] = 2
    device: Device = "auto"
    as_json: Json = False

    def options(self) -> dict[str, Any]:
        """Return the sampling options as keywords of `Model.generate`."""
        return field_values(self, SamplingOptions)

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
        lines = texts if len(texts) == 1 else (f"--- {number}\n{text}" for number, text in enumerate(texts, 1))
        return show_result(self.as_json, {"method": model.method.name, "texts": texts, **more}, lines)


@dataclass(frozen=True, kw_only=True)
class OneModelCommand(SamplingCommand):
    """Options of a command that samples from one model."""

    model: ModelName = None


@dataclass(frozen=True, kw_only=True)
class GenerateCommand(SamplingCommand):
    """Generate texts or images.

    The texts of several models are printed side by side.

    Example: unnoise generate --model runs/first --num-samples 3 --watch
    """

    model: ModelNames = ()
    length: int | None = None
    """Number of tokens of a sample (flexmdm: the largest number); default: the model's length."""
    watch: Annotated[bool, arg(help="Show how the first sample emerges from noise.")] = False
    stream: Stream = False
    out: Annotated[Path | None, arg(help="Output file of a model of images, .png; default: samples.png.")] = None
    workers: Workers = 1

    def run(self) -> int:
        if self.stream and (given := [name for name in self.single_model_options() if name != "--stream"]):
            raise ValueError(f"--stream only prints texts while they are generated: leave out {given[0]}")
        if len(self.model) > 1:
            return self._side_by_side()
        if self.stream:
            return self._stream(open_model(only_model(self.model, "unnoise generate"), self.device), "", self.length)
        workers = chosen_workers(self.workers, self.num_samples, self.as_json)
        return run_together(workers, self.device, self._sample, self._finish)

    def _side_by_side(self) -> int:
        """Sample from each model, and print a column for each."""
        if given := [*self.single_model_options(), *(["--workers"] if self.workers != 1 else [])]:
            raise ValueError(f"texts of several models are printed side by side: leave out {given[0]}, or give one --model")
        models = open_models(self.model, self.device)
        for name, model in models.items():  # before any of them samples
            if model.codec.grid:
                raise ValueError(f"only texts are printed side by side, but {name} is a model of images: give it alone")
            model.check_sampler(model.sampling_options(self.options()).resolve(model.method.sampler))
        found = []
        for name, model in models.items():
            self.say_recommended(model, name)
            texts = model.generate(self.num_samples, self.length, **self.options())
            kept = self.follows_distribution(model)
            found.append({"model": name, "method": model.method.name, "texts": texts, "keeps_distribution": kept})
        if not self.as_json:
            from unnoise.cli.terminal import print_columns

            print_columns([one["model"] for one in found], [one["texts"] for one in found])
            return 0
        return show_result(True, {"models": found, "seed": self.seed}, ())

    def single_model_options(self) -> list[str]:
        """Return the given options that apply to one model only. Applications extend this."""
        options = {"--watch": self.watch, "--stream": self.stream, "--out": self.out}
        return [name for name, value in options.items() if value]

    @property
    def keeps_chain(self) -> bool:
        """True if the states of the chain are kept. Applications extend this."""
        return False

    def _sample(self, device: str) -> "tuple[Model, list[Step], Any]":
        from unnoise import distributed
        from unnoise.cli.terminal import LiveChain
        from unnoise.files import check_writable

        model = open_model(only_model(self.model, "unnoise generate"), device)
        if self.out is not None and not model.codec.grid:
            raise ValueError("--out is for models of images: leave it out, and a model of text prints its samples")
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
class InfillCommand(OneModelCommand):
    """Fill in the blanks of a text.

    [MASK] is one token, and [GAP] any number of tokens (flexmdm).

    Example: unnoise infill "the [MASK][MASK][MASK][MASK] of the people" --num-samples 3
    """

    text: Annotated[Positional[str], arg(metavar="TEXT", help="Text with [MASK] or [GAP] for the blanks.")] = ""

    def run(self) -> int:
        from unnoise.model.generate import MARKS, WORD

        if not MARKS.search(self.text) and os.path.isfile(self.text):  # false too for a text that is too long for a path
            raise ValueError(f"{self.text} is a file, and infill takes a text: use unnoise fill {self.text} for its {WORD}s")
        model = open_model(self.model, self.device)
        texts = model.infill(self.text, self.num_samples, **self.options())
        return self._filled(model, self.text, model.template(self.text), texts)


@dataclass(frozen=True, kw_only=True)
class CompleteCommand(OneModelCommand):
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
            raise ValueError(f"--prefix and --suffix are plain text: use infill for a text with {MASK}, {GAP} or {WORD}")
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
    return show_result(as_json, {"out": str(out), "images": len(pictures)}, [f"wrote {out}: {len(pictures)} images"])


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

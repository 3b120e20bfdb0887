"""Commands that write: texts, what is missing in them, images, corrections."""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from unnoise.command.base import Device, ModelName, Quiet, at_least, open_model, text_of

if TYPE_CHECKING:
    from unnoise.model import Model, Step
    from unnoise.template import Template

SPELLER = "wiki"  # the bundled model that corrects spelling


@dataclass
class _Writing:
    """What every command that writes can be told."""

    model: ModelName = None
    num_samples: Annotated[int, arg(help="How many texts.")] = 2
    steps: Annotated[
        int, arg(help="Denoising steps: network calls, at most (first-hitting and ar take one for each token).")
    ] = 128
    sampler: Annotated[
        str | None, arg(help="A name from `unnoise ls`, such as confidence or first-hitting; default: the method's own.")
    ] = None
    temperature: float = 1.0
    top_p: float = 1.0
    label: Annotated[int | None, arg(help="The class of what is written, for a model trained with labels.")] = None
    guidance: Annotated[float, arg(help="How much the label is insisted on; 1 is the model's own conditional.")] = 1.0
    seed: int = 0
    device: Device = "auto"
    quiet: Quiet = False

    def _how(self) -> dict[str, Any]:
        return {
            "steps": self.steps,
            "sampler": self.sampler,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "label": self.label,
            "guidance": self.guidance,
            "seed": self.seed,
        }

    def _filled(self, model: "Model", template: "Template", texts: list[str]) -> int:
        """Show texts that were filled in, and say if that was a heuristic."""
        from unnoise.model import Writing

        exact = model.fills_exactly(template)
        if not exact and not self.quiet:
            print(f"filling in with {model.method.name} is a heuristic: not its exact conditional", file=sys.stderr)
        return self._show(model, texts, seed=self.seed, exact=exact and Writing(**self._how()).keeps_law)

    def _show(self, model: "Model", texts: list[str], **more: object) -> int:
        if self.quiet:
            print(json.dumps({"method": model.method.name, "texts": texts, **more}, ensure_ascii=False))
            return 0
        for i, text in enumerate(texts):
            print(text if len(texts) == 1 else f"--- {i + 1}\n{text}")
        return 0


@dataclass
class Generate(_Writing):
    """Write new texts.

    Example: unnoise generate --model runs/first --num-samples 3 --watch
    """

    length: Annotated[int | None, arg(help="Tokens of a text (flexmdm: at most); default: the model's length.")] = None
    watch: Annotated[bool, arg(help="Watch the first text emerge from noise.")] = False
    replay: Annotated[Path | None, arg(help="Write the chain as an HTML page that plays.")] = None
    out: Annotated[Path | None, arg(help="The sheet that a model of images writes; default: samples.png.")] = None

    def run(self) -> int:
        """Write, and show the chain if asked."""
        from unnoise.files import check_writable
        from unnoise.replay import write_replay
        from unnoise.screen import watch

        model = open_model(self.model, self.device)
        if self.replay is not None:
            check_writable(self.replay, (".html",))
        if self.out is not None and not model.codec.grid:
            raise ValueError("--out is for models of images; a model of text prints what it writes")
        out = self.out or Path("samples.png")
        if model.codec.grid:
            check_writable(out, (".png",))
        steps: list[Step] = []
        follow = steps.append if self.watch or self.replay else None
        if model.codec.grid:
            if self.length is not None:
                raise ValueError("an image has the size that the model was trained with: leave --length out")
            result: Any = model.draw(self.num_samples, on_step=follow, **self._how())
        else:
            result = model.generate(self.num_samples, self.length, on_step=follow, **self._how())
        if self.watch and not self.quiet:
            watch(steps)
        if self.replay:
            write_replay(
                self.replay,
                steps,
                f"{model.method.name}: {'an image' if model.codec.grid else 'a text'} from noise, seed {self.seed}",
            )
            print(f"wrote {self.replay}", file=sys.stderr)
        if model.codec.grid:
            return write_sheet(result, out, self.quiet)
        return self._show(model, result, seed=self.seed)


@dataclass
class Infill(_Writing):
    """Fill in each [MASK] of a text with one token, and each [GAP] with any number of them (flexmdm).

    Example: unnoise infill "the [MASK][MASK][MASK] of the people" --num-samples 3
    """

    text: Annotated[Positional[str], arg(metavar="TEXT", help="A text with [MASK] for each blank token, [GAP] for a gap.")] = ""

    def run(self) -> int:
        """Fill in and print."""
        model = open_model(self.model, self.device)
        return self._filled(model, model.template(self.text), model.infill(self.text, self.num_samples, **self._how()))


@dataclass
class Complete(_Writing):
    """Write a text that begins with --prefix and ends with --suffix.

    Example: unnoise complete --prefix "my fellow citizens" --suffix "god bless america" --length 120
    """

    prefix: str = ""
    suffix: str = ""
    length: Annotated[int | None, arg(help="Tokens of the whole text; default: the model's length.")] = None
    blanks: Annotated[int | None, arg(help="Tokens to write between the two, instead of --length.")] = None

    def run(self) -> int:
        """Complete and print."""
        model = open_model(self.model, self.device)
        length = self.length
        if self.blanks is not None:
            if length is not None or self.blanks < 1:
                raise ValueError("give either --length or --blanks, which must be ≥ 1")
            length = len(model.codec.encode(self.prefix)) + self.blanks + len(model.codec.encode(self.suffix))
        template = model.completion(self.prefix, self.suffix, length)
        return self._filled(model, template, model.complete(self.prefix, self.suffix, length, self.num_samples, **self._how()))


@dataclass
class Inpaint(_Writing):
    """Complete held-out images of which a half is given; writes a sheet: the original, what is given, then the variants.

    Example: unnoise inpaint --model runs/digits --data digits --given lower --images 8 --out inpainting.png
    """

    data: Annotated[str, arg(help="As for train.")] = "digits"
    split: Annotated[str, arg(help="train, valid or test.")] = "test"
    given: Annotated[str, arg(help="Which half is given: upper, lower, left or right.")] = "lower"
    images: Annotated[int, arg(help="How many images.")] = 8
    out: Annotated[Path, arg(help="The sheet to write.")] = Path("inpainting.png")

    def run(self) -> int:
        """Paint and write the sheet."""
        import numpy as np

        from unnoise.data.corpus import corpus
        from unnoise.data.pixels import Pixels, half
        from unnoise.files import check_writable

        at_least(1, images=self.images)
        check_writable(self.out, (".png",))
        model = open_model(self.model, self.device)
        if not isinstance(model.codec, Pixels):
            raise ValueError("this is a model of text: use infill")
        known = half(model.codec.shape, self.given)
        rows = []
        for tokens in corpus(self.data).texts(model.codec, self.split, model.length).windows(self.images).numpy():
            picture = model.codec.decode_image(tokens)
            shown = np.where(known, picture, 128).astype(np.uint8)
            rows += [picture, shown, *model.draw(self.num_samples, picture, known, **self._how())]
        return write_sheet(np.stack(rows), self.out, self.quiet, columns=2 + self.num_samples)


@dataclass
class Correct:
    """Correct the spelling of a text.

    Example: unnoise correct "mexico citi is one of the worlds largst" --strength 0.5
    """

    text: Annotated[Positional[str], arg(metavar="TEXT", help="A text, a file, or - for standard input.")]
    model: Annotated[str | None, arg(help="Folder of a trained model, or a bundled name; default: the speller.")] = None
    strength: Annotated[float, arg(help="How ready it is to change things, 0 to 1.")] = 0.5
    keep: Annotated[tuple[str, ...], arg(help="Words that are never touched.")] = ()
    edits: Annotated[bool, arg(help="List the edits, with confidence and alternatives.")] = False
    device: Device = "auto"
    quiet: Quiet = False

    def run(self) -> int:
        """Correct and print."""
        model = open_model(self.model or SPELLER, self.device)
        text = text_of(self.text)
        result = model.correct(text, self.strength, self.keep)
        if self.quiet:
            print(json.dumps(asdict(result), ensure_ascii=False))
            return 0
        sys.stdout.write(result.text + "\n" * (text == self.text))  # a file's end stays as it was
        for edit in result.edits if self.edits else ():
            others = ", ".join(f"{word} {p:.2f}" for word, p in edit.alternatives)
            print(f"{edit.start:>6}  {edit.before} → {edit.after}  {edit.confidence:.2f}   ({others})", file=sys.stderr)
        return 0


def write_sheet(pictures: Any, out: Path, quiet: bool, columns: int = 10) -> int:
    """Write images as one PNG, and say so."""
    from unnoise.data.images import sheet

    sheet(pictures, min(columns, len(pictures)), out)
    print(json.dumps({"out": str(out), "images": len(pictures)}) if quiet else f"wrote {out}: {len(pictures)} images")
    return 0

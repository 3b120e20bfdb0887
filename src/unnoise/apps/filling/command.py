"""The command `unnoise fill`."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from unnoise.cli import generate_command
from unnoise.cli.command_base import Device, Json, ModelName, at_least, open_model, percent, printable, say_read

if TYPE_CHECKING:
    from unnoise.apps.filling.word_filling import Filling
    from unnoise.model.model import Model

CONTEXT = 40  # characters printed on each side of a mark


@dataclass
class FillCommand:
    """Propose words for each [WORD] of a file.

    The words are ranked by their probability under the model.

    Example: unnoise fill draft.txt --out filled.txt
    """

    file: Annotated[
        Positional[str], arg(metavar="FILE", help="A text file with [WORD] for each missing word, or - for standard input.")
    ]
    model: ModelName = None
    most: Annotated[int, arg(help="Maximum number of words for each mark.")] = 5
    out: Annotated[Path | None, arg(help="File for the text with the best words filled in.")] = None
    label: Annotated[str | None, arg(help="The class of the text, for a model trained with labels.")] = None
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        from rich.console import Console
        from rich.progress import track

        from unnoise.apps.filling.word_filling import Filling
        from unnoise.files import check_writable, write_atomically
        from unnoise.model.generate import text_as_read

        at_least(1, most=self.most)
        if self.out == Path("-"):
            raise ValueError("--out takes a file; the filled text is also in what --json prints")
        if self.out is not None:
            check_writable(self.out)
        text = self._text()
        model = open_model(self.model, self.device)
        filling = Filling(model, text, self.label)
        read = text_as_read(text, model.codec)
        say_read(read)
        console = Console(stderr=True)
        for _ in track(filling, "filling in", filling.count, console=console, transient=True, disable=not console.is_terminal):
            pass
        best = filling.text(filling.ways(1)[0][0])
        if self.out is not None:
            write_atomically(self.out, best.encode("utf-8", "surrogateescape"))
        marks = self._marks(filling, text)
        if self.as_json:
            print(json.dumps({"method": model.method.name, "marks": marks, "text": best, "read": read}))
            return 0
        for mark in marks:
            print(_shown(mark))
        if self.out is not None:
            print(f"wrote {self.out}", file=sys.stderr)
        return 0

    def _text(self) -> str:
        from unnoise.data.corpus import read_text

        if self.file == "-":
            return sys.stdin.read()
        if Path(self.file).is_dir():
            raise ValueError(f"{self.file} is a folder: give a text file, or - for standard input")
        if not Path(self.file).is_file():
            raise ValueError(f"there is no file {self.file!r}: a text in quotes goes to unnoise infill")
        return read_text(Path(self.file))

    def _marks(self, filling: "Filling", text: str) -> list[dict[str, Any]]:
        """Return each mark with its line, its column, the text around it on the line, and its proposals."""
        from unnoise.model.generate import WORD

        found, start = [], -1
        for candidates in filling.candidates(self.most):
            start = text.index(WORD, start + 1)
            before, after = text[:start].rpartition("\n")[2], text[start + len(WORD) :].partition("\n")[0].removesuffix("\r")
            place = {"line": text.count("\n", 0, start) + 1, "column": len(before) + 1, "before": before, "after": after}
            found.append(place | {"proposals": [one._asdict() for one in candidates]})
        return found


def _shown(mark: dict[str, Any]) -> str:
    """Return a mark in its context, with the proposals on a second line."""
    before, after = (mark[side].replace("[WORD]", "___").replace("\t", " ") for side in ("before", "after"))
    if len(before) > CONTEXT:
        before = "…" + before[-CONTEXT:].partition(" ")[2]
    if len(after) > CONTEXT:
        after = after[:CONTEXT].rpartition(" ")[0] + "…"
    proposals = "   ".join(f"{one['text']} {percent(one['probability'])}" for one in mark["proposals"])
    where = f"{mark['line']}:{mark['column']}"
    return f"{where:>8}  {printable(before)}[WORD]{printable(after)}\n{'':10}{printable(proposals or 'nothing fits')}"


@dataclass(frozen=True, kw_only=True)
class InfillCommand(generate_command.InfillCommand):
    """Fill in the blanks of a text.

    [MASK] is one token, [GAP] any number of tokens (flexmdm), and [WORD] one word. Words are searched for, not sampled: the
    most probable texts are printed first, with their probabilities.

    Example: unnoise infill "the [WORD] of the people" --num-samples 3
    """

    text: Annotated[Positional[str], arg(metavar="TEXT", help="Text with [MASK], [GAP] or [WORD] for the blanks.")] = ""

    def run(self) -> int:
        from unnoise.model.generate import WORD

        if WORD not in self.text:
            return super().run()
        drawn = ("steps", "sampler", "temperature", "top_p")
        if given := [name for name, value in self.options().items() if name in drawn and value is not None]:
            raise ValueError(f"{WORD} is searched for, not sampled: leave out --{given[0].replace('_', '-')}")
        return self._words(open_model(self.model, self.device))

    def _words(self, model: "Model") -> int:
        """Print the most probable texts for a text with [WORD]s."""
        from unnoise.apps.filling.word_filling import Filling, check_only_words
        from unnoise.model.generate import text_as_read

        at_least(1, num_samples=self.num_samples)
        check_only_words(self.text)
        filling = Filling(model, self.text, self.label, self.guidance_scale).finished()
        ways = filling.ways(self.num_samples)
        texts = [filling.text(words) for words, _ in ways]
        probabilities = [p for _, p in ways]
        read = text_as_read(self.text, model.codec)
        say_read(read)
        if self.as_json:
            marks = [[one._asdict() for one in candidates] for candidates in filling.candidates(self.num_samples)]
            return self._show(model, texts, probabilities=probabilities, marks=marks, read=read)
        for text, p in zip(texts, probabilities, strict=True):
            print(f"{percent(p, 1):>7}  {text}")
        return 0

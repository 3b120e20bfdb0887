"""The command `unnoise correct`, for the `Speller`."""

import json
import sys
from dataclasses import asdict, dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from unnoise.cli.command_base import Device, Json, open_model, text_of

SPELLER = "wiki"  # the bundled model that corrects spelling


@dataclass
class CorrectCommand:
    """Correct the spelling of a text.

    Example: unnoise correct "mexico citi is one of the worlds largst" --strength 0.5
    """

    text: Annotated[Positional[str], arg(metavar="TEXT", help="A text, a file, or - for standard input.")]
    model: Annotated[str | None, arg(help="Folder of a trained model, or a bundled name; default: wiki.")] = None
    strength: Annotated[
        float, arg(help="Readiness to change words, from 0 (never) to 1 (always take the most probable candidate).")
    ] = 0.5
    keep: Annotated[tuple[str, ...], arg(help="Words that are never changed.")] = ()
    edits: Annotated[bool, arg(help="List the edits, with confidence and alternatives.")] = False
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        from unnoise.apps.spelling import correct

        model = open_model(self.model or SPELLER, self.device)
        text = text_of(self.text)
        result = correct(model, text, strength=self.strength, keep=self.keep)
        if self.as_json:
            print(json.dumps(asdict(result), ensure_ascii=False))
            return 0
        sys.stdout.write(result.text + "\n" * (text == self.text))  # keep the end of a file unchanged
        for edit in result.edits if self.edits else ():
            others = ", ".join(f"{word} {p:.2f}" for word, p in edit.alternatives)
            print(f"{edit.start:>6}  {edit.before} → {edit.after}  {edit.confidence:.2f}   ({others})", file=sys.stderr)
        return 0

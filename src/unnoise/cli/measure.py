"""Commands that measure: `unnoise score` and `eval`."""

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from unnoise.cli.base import Device, Json, ModelName, at_least, open_model, text_of
from unnoise.cli.workers import MANY, Workers, chosen_workers, run_together

if TYPE_CHECKING:
    from unnoise.model.likelihood import Score
    from unnoise.model.model import Model


@dataclass
class ScoreCommand:
    """Bits per character of a text: exact for ar, an upper bound otherwise.

    Example: unnoise score "the state of the union is strong" --model runs/first
    """

    text: Annotated[Positional[str], arg(metavar="TEXT", help="A text, a file, or - for standard input.")]
    model: ModelName = None
    samples: Annotated[int | None, arg(help="Draws of the bound, at most; default: 32, or 2 with --orders.")] = None
    orders: Annotated[
        int | None,
        arg(help="Average so many orders of revealing the text: a tighter bound, for masked models that do not read the time."),
    ] = None
    error: Annotated[float, arg(help="Stop drawing at this standard error, in bits per character.")] = 0.01
    seed: int = 0
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        """Score and print."""
        return run_together(1, self.device, self._score, self._show)

    def _score(self, device: str) -> "tuple[Model, Score]":
        from unnoise import distributed

        model = open_model(self.model, device)
        text = distributed.each(1, lambda _: text_of(self.text))[0]  # one process reads it, as standard input can be read once
        return model, model.score(text, self.samples, self.seed, self.error, self.orders)

    def _show(self, found: "tuple[Model, Score]") -> int:
        from unnoise.evaluation.dataset import figure_kind

        model, score = found
        if self.as_json:
            print(json.dumps(asdict(score)))
            return 0
        orders = "" if score.orders is None else f" of {score.orders} orders"
        print(
            f"{score.bits_per_char:.4f} bits per {model.codec.unit} "
            f"({figure_kind(model)}{orders}{_drawn(score.stderr, score.draws)}), "
            f"{score.nats:.1f} nats in all"
        )
        if score.read is not None:
            print(f"read in the model's alphabet as {score.read[:200]!r}{'…' if len(score.read) > 200 else ''}")
        if score.windows > 1:
            print(f"longer than the model's {model.length} tokens: scored in {score.windows} windows, each by itself")
        return 0


@dataclass
class EvalCommand:
    """Bits per character over a data set.

    Example: unnoise eval --model runs/first --data path/to/text8 --split test
    """

    data: Annotated[str, arg(help="As for train.")] = "sotu"
    model: ModelName = None
    split: Annotated[str, arg(help="train, valid or test.")] = "test"
    texts: Annotated[
        Literal["windows", "whole"] | None,
        arg(help="Windows of one stream, or whole texts (lines, records) with their ends; default: as it was trained."),
    ] = None
    windows: Annotated[int | None, arg(help="At most so many windows, evenly spread; default: all.")] = None
    samples: Annotated[int, arg(help="Draws of the bound for each window, at most.")] = 16
    error: Annotated[float, arg(help="Stop drawing at this standard error, in bits per character.")] = 0.01
    seed: int = 0
    workers: Workers = 1
    device: Device = "auto"
    as_json: Json = False

    def run(self) -> int:
        """Evaluate and print."""
        at_least(1, windows=self.windows)
        at_least(1, samples=self.samples)
        workers = chosen_workers(self.workers, self.windows or MANY, self.as_json)
        return run_together(workers, self.device, self._evaluate, self._show)

    def _evaluate(self, device: str) -> "tuple[Model, dict[str, Any]]":
        from unnoise.data.corpus import corpus
        from unnoise.evaluation.dataset import evaluate_split, read_texts

        model = open_model(self.model, device)
        if self.texts is not None:
            read_texts(model, self.texts == "whole")
        source = corpus(self.data)
        return model, evaluate_split(model, source, self.split, self.windows, self.samples, self.seed, self.error)

    def _show(self, result: "tuple[Model, dict[str, Any]]") -> int:
        from unnoise.evaluation.dataset import LOSSY, figure_kind

        model, found = result
        if self.as_json:
            print(json.dumps(found))
            return 0
        variable = model.process.variable_length
        cut = "sentences of at most" if variable else "whole texts of at most" if model.whole_texts else "windows of"
        texts = "images of" if model.codec.grid else cut
        print(
            f"{found['bits_per_char']:.4f} bits per {model.codec.unit} ({figure_kind(model)}"
            f"{_drawn(found['stderr'], found['draws'])}; {found['windows']} {texts} {model.length})"
        )
        if not found["lossless"]:
            print(LOSSY)
        if found["text_stderr"] is not None:
            print(f"± {found['text_stderr']:.4f} as a figure about all such texts, over those measured")
        return 0


def _drawn(stderr: float, draws: int) -> str:
    return f", ± {stderr:.4f} by {draws} draws each" if draws > 1 else ""

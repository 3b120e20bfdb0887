"""The command line. Each command is one dataclass: its fields are the options, its docstring the help.

torch is imported inside the commands, so that `unnoise --help` answers at once. A user's mistake is one sentence on standard
error and exit code 2.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from tyro.conf import FlagCreatePairsOff, OmitSubcommandPrefixes, Positional, arg, subcommand

if TYPE_CHECKING:
    from unnoise.model import Model, Step

DEFAULT_MODEL = "the newest in runs/, else the bundled wiki"
SPELLER = "wiki"  # the bundled model that corrects spelling
Quiet = Annotated[bool, arg(name="json", help="Print one JSON object.")]
ModelName = Annotated[str | None, arg(help=f"Folder of a trained model, or a bundled name; default: {DEFAULT_MODEL}.")]


@dataclass
class Train:
    """Train a model.

    Example: unnoise train mdlm --data sotu --out runs/first --minutes 3
    """

    method: Annotated[Positional[str], arg(metavar="METHOD", help="A name from `unnoise ls`.")]
    data: Annotated[
        str, arg(help="sotu, text8, enwik8, digits, a text file, a folder with train, valid and test, or images in .npz.")
    ] = "sotu"
    out: Annotated[Path | None, arg(help="Folder to write; default: runs/METHOD-DATA.")] = None
    steps: Annotated[int | None, arg(help="Train for so many steps …")] = None
    minutes: Annotated[float | None, arg(help="… or for so many minutes (3, if neither is given).")] = None
    size: Annotated[str, arg(help="nano, tiny, small or base.")] = "tiny"
    width: Annotated[int | None, arg(help="Override the size's width.")] = None
    depth: Annotated[int | None, arg(help="Override the size's number of layers.")] = None
    heads: Annotated[int | None, arg(help="Override the size's number of heads.")] = None
    length: Annotated[int, arg(help="Tokens of a text.")] = 256
    codec: Annotated[str, arg(help="auto, text8, bytes, chars, bpe, bpe-4096, or gpt2:FOLDER.")] = "auto"
    loss: Annotated[str, arg(help="quick (the method's fast start, where it has one) or paper (what the paper trains).")] = (
        "quick"
    )
    batch: Annotated[int, arg(help="Texts in a batch.")] = 8
    accumulate: Annotated[int, arg(help="Batches to an update.")] = 1
    matrix_lr: Annotated[float, arg(help="Learning rate of Muon, for matrices.")] = 0.02
    other_lr: Annotated[float, arg(help="Learning rate of Adam, for the rest.")] = 0.003
    warmup: Annotated[float, arg(help="Share of the run over which the learning rates rise.")] = 0.02
    cooldown: Annotated[float, arg(help="Share of the run over which they fall to zero.")] = 1.0
    clip: Annotated[float, arg(help="Largest norm of the gradient.")] = 1.0
    ema: Annotated[float, arg(help="Decay of the averaged weights; 0 keeps none.")] = 0.0
    eval_every: Annotated[int | None, arg(help="Steps between evaluations; default: a tenth of the run.")] = None
    eval_windows: Annotated[int, arg(help="Held-out texts in an evaluation.")] = 128
    save_every: Annotated[int, arg(help="Steps between checkpoints.")] = 200
    resume: Annotated[bool, arg(help="Go on from the run in --out.")] = False
    compile: Annotated[bool, arg(help="torch.compile the network: slow to start, then faster.")] = False
    seed: int = 0
    device: Annotated[str, arg(help="auto, cpu, cuda, …")] = "auto"
    quiet: Quiet = False

    def run(self) -> int:
        """Train, and say what came of it."""
        from unnoise.training_command import train_command

        return train_command(self)


@dataclass
class _Writing:
    """What every command that writes can be told."""

    model: ModelName = None
    num_samples: Annotated[int, arg(help="How many texts.")] = 2
    steps: Annotated[int, arg(help="Denoising steps: network calls, at most.")] = 128
    sampler: Annotated[
        str | None, arg(help="A name from `unnoise ls`, such as confidence or first-hitting; default: the method's own.")
    ] = None
    temperature: float = 1.0
    top_p: float = 1.0
    label: Annotated[int | None, arg(help="The class of what is written, for a model trained with labels.")] = None
    guidance: Annotated[float, arg(help="How much the label is insisted on; 1 is the model's own conditional.")] = 1.0
    seed: int = 0
    device: Annotated[str, arg(help="auto, cpu, cuda, …")] = "auto"
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

    def _filled(self, model: "Model", texts: list[str]) -> int:
        """Show texts that were filled in, and say if that was a heuristic."""
        if not model.fills_exactly and not self.quiet:
            print(f"filling in with {model.method.name} is a heuristic: not its exact conditional", file=sys.stderr)
        return self._show(model, texts, seed=self.seed, exact=model.fills_exactly)

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
    out: Annotated[Path, arg(help="The sheet that a model of images writes.")] = Path("samples.png")

    def run(self) -> int:
        """Write, and show the chain if asked."""
        from unnoise.replay import write_replay
        from unnoise.screen import watch

        model = open_model(self.model, self.device)
        if model.codec.grid:
            return write_sheet(model.draw(self.num_samples, **self._how()), self.out, self.quiet)
        steps: list[Step] = []
        follow = steps.append if self.watch or self.replay else None
        texts = model.generate(self.num_samples, self.length, on_step=follow, **self._how())
        if self.watch and not self.quiet:
            watch(steps)
        if self.replay:
            write_replay(self.replay, steps, f"{model.method.name}: a text from noise, seed {self.seed}")
            print(f"wrote {self.replay}", file=sys.stderr)
        return self._show(model, texts, seed=self.seed)


@dataclass
class Infill(_Writing):
    """Fill in each [MASK] of a text with one token, and each [GAP] with any number of them (flexmdm).

    Example: unnoise infill "the [MASK][MASK][MASK] of the people" --num-samples 3
    """

    text: Annotated[Positional[str], arg(metavar="TEXT", help="A text with [MASK] for each blank token, [GAP] for a gap.")] = ""

    def run(self) -> int:
        """Fill in and print."""
        model = open_model(self.model, self.device)
        return self._filled(model, model.infill(self.text, self.num_samples, **self._how()))


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
        return self._filled(model, model.complete(self.prefix, self.suffix, length, self.num_samples, **self._how()))


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
    device: Annotated[str, arg(help="auto, cpu, cuda, …")] = "auto"
    quiet: Quiet = False

    def run(self) -> int:
        """Correct and print."""
        model = open_model(self.model or SPELLER, self.device)
        result = model.correct(_text(self.text), self.strength, self.keep)
        if self.quiet:
            print(json.dumps(asdict(result), ensure_ascii=False))
            return 0
        print(result.text.rstrip("\n"))
        for edit in result.edits if self.edits else ():
            others = ", ".join(f"{word} {p:.2f}" for word, p in edit.alternatives)
            print(f"{edit.start:>6}  {edit.before} → {edit.after}  {edit.confidence:.2f}   ({others})", file=sys.stderr)
        return 0


@dataclass
class Score:
    """Bits per character of a text: exact for ar, an upper bound otherwise.

    Example: unnoise score "the state of the union is strong" --model runs/first
    """

    text: Annotated[Positional[str], arg(metavar="TEXT", help="A text, a file, or - for standard input.")]
    model: ModelName = None
    samples: Annotated[int, arg(help="Draws of the bound.")] = 32
    seed: int = 0
    device: Annotated[str, arg(help="auto, cpu, cuda, …")] = "auto"
    quiet: Quiet = False

    def run(self) -> int:
        """Score and print."""
        model = open_model(self.model, self.device)
        score = model.score(_text(self.text), self.samples, self.seed)
        if self.quiet:
            print(json.dumps(asdict(score)))
            return 0
        kind = "exact" if score.exact else "upper bound"
        print(
            f"{score.bits_per_char:.4f} bits per {model.codec.unit} ({kind}, ± {score.stderr:.4f}), "
            f"{score.nats:.1f} nats in all"
        )
        if score.windows > 1:
            print(f"longer than the model's {model.length} tokens: scored in {score.windows} windows, each by itself")
        return 0


@dataclass
class Eval:
    """Bits per character over a data set.

    Example: unnoise eval --model runs/first --data path/to/text8 --split test
    """

    data: Annotated[str, arg(help="As for train.")] = "sotu"
    model: ModelName = None
    split: Annotated[str, arg(help="train, valid or test.")] = "test"
    windows: Annotated[int | None, arg(help="At most so many windows, evenly spread; default: all.")] = None
    samples: Annotated[int, arg(help="Draws of the bound for each window.")] = 4
    seed: int = 0
    device: Annotated[str, arg(help="auto, cpu, cuda, …")] = "auto"
    quiet: Quiet = False

    def run(self) -> int:
        """Evaluate and print."""
        import math

        from unnoise.data.corpus import corpus

        model = open_model(self.model, self.device)
        source = corpus(self.data)
        texts = source.texts(model.codec, self.split, model.length, model.process.variable)
        x = texts.windows(self.windows)
        nats, error = model.evaluate(x, self.samples, self.seed)
        scale = 1 / (math.log(2) * texts.characters)
        kind_of_text = "sentences of at most" if model.process.variable else "windows of"
        if self.quiet:
            result = {"bits_per_char": nats * scale, "stderr": error * scale, "exact": model.method.exact}
            total = nats * int((x >= 0).sum())
            print(json.dumps(result | {"windows": len(x), "method": model.method.name, "nats": total}))
        else:
            kind = "exact" if model.method.exact else "upper bound"
            print(
                f"{nats * scale:.4f} ± {error * scale:.4f} bits per {model.codec.unit} "
                f"({kind}; {len(x)} {kind_of_text} {model.length})"
            )
        return 0


@dataclass
class Info:
    """What a model is.

    Example: unnoise info --model runs/first --schedule
    """

    model: ModelName = None
    schedule: Annotated[bool, arg(help="Show the noise schedule, and the learned exponents where there are any.")] = False
    picture: Annotated[Path | None, arg(help="Write the schedule as a picture, .png or .svg.")] = None
    quiet: Quiet = False

    def run(self) -> int:
        """Print the configuration."""
        model = open_model(self.model, "cpu")
        if self.picture:
            from unnoise.plot import plot_schedule

            plot_schedule(model, self.picture)
            print(f"wrote {self.picture}", file=sys.stderr)
        if self.quiet:
            result = model.config() | {"parameters": model.parameters}
            print(json.dumps(result | (self._schedule(model) if self.schedule else {}), ensure_ascii=False))
            return 0
        shape = model.shape
        print(f"{model.method.name}: {model.method.title}\n{model.method.paper}")
        print(f"network    {shape.depth} layers × {shape.width}, {shape.heads} heads, {model.parameters:,} parameters")
        print(
            f"codec      {model.codec.kind}, {model.codec.vocab} tokens{', one of them ends a text' if model.codec.end else ''}"
        )
        print(f"length     {shape.length} tokens")
        for name, value in model.notes.items():
            print(f"{name:10s} {value}")
        if self.schedule:
            self._show(self._schedule(model))
        return 0

    def _schedule(self, model: "Model") -> dict[str, Any]:
        """α at some times, by curve (the mean over tokens where they differ), and the learned exponents."""
        import torch

        from unnoise.plot import exponents

        t = torch.tensor([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99], dtype=torch.float64)
        with torch.no_grad():
            curves = {name: alpha(t).view(len(t), -1).mean(1).tolist() for name, alpha in model.process.curves().items()}
        return {"t": t.tolist(), "curves": curves, "exponents": exponents(model)}

    def _show(self, schedule: dict[str, Any]) -> None:
        curves, exponents = schedule["curves"], schedule["exponents"]
        if not curves:
            print("schedule   none: this method has no noise")
            return
        print("schedule   t     " + " ".join(f"{t:5.2f}" for t in schedule["t"]))
        for name, values in curves.items():
            print(f"           {name}{' (mean)' if exponents else ''}  " + " ".join(f"{value:5.3f}" for value in values))
        if exponents:
            listed = list(exponents.items())
            print(f"exponents  α_i(t) = 1 − t^w_i, w from {listed[-1][1]:.3f} to {listed[0][1]:.3f}")
            for words, some in (("first", listed[:5]), ("last", listed[:-6:-1])):
                print(f"           revealed {words}: " + ", ".join(f"{token} {w:.3f}" for token, w in some))


@dataclass
class Ls:
    """List methods and models.

    Example: unnoise ls
    """

    quiet: Quiet = False

    def run(self) -> int:
        """Print the table of methods, then the models at hand."""
        from unnoise.method_table import SAMPLERS, method, methods

        models = {str(path): json.loads((path / "config.json").read_text()).get("method", "?") for path in model_folders()}
        if self.quiet:
            laws = {name: sampler.law for name, sampler in SAMPLERS.items()}
            print(json.dumps({"methods": methods(), "samplers": laws, "models": models}, ensure_ascii=False))
            return 0
        print("methods")
        for name in methods():
            print(f"  {name:20s} {method(name).title}")
        print("samplers")
        for name, sampler in SAMPLERS.items():
            print(f"  {name:20s} {sampler.law}")
        print("models")
        for path, name in models.items():
            print(f"  {path:20s} {name}")
        return 0


@dataclass
class Plot:
    """Draw a picture: the training curve, the noise schedule, the loss at each noise level, or a chain as a filmstrip.

    Example: unnoise plot chain --model wiki --out chain.png
    """

    kind: Annotated[Positional[str], arg(metavar="KIND", help="curve, schedule, loss or chain.")]
    model: ModelName = None
    out: Annotated[Path | None, arg(help="The file, .png or .svg; default: KIND.png.")] = None
    data: Annotated[str, arg(help="Held-out text for `loss`; as for train.")] = "sotu"
    steps: Annotated[int, arg(help="Denoising steps of the chain.")] = 128
    seed: int = 0
    quiet: Quiet = False

    def run(self) -> int:
        """Draw, and say where."""
        from unnoise.plot import PLOTS, plot_curve

        out = self.out or Path(f"{self.kind}.png")
        if self.kind == "curve":
            plot_curve(Path(self.model) if self.model else model_folders()[-1], out)
        elif self.kind in PLOTS:
            PLOTS[self.kind](open_model(self.model, "cpu"), out, self.data, self.steps, self.seed)
        else:
            raise ValueError(f"unknown picture {self.kind!r}: use one of curve, {', '.join(PLOTS)}")
        print(json.dumps({"out": str(out)}) if self.quiet else f"wrote {out}")
        return 0


@dataclass
class Studio:
    """Open a local page to watch, fill in, correct and compare.

    Example: unnoise studio --model runs/first --port 8000
    """

    model: Annotated[str | None, arg(help="Folder of a trained model, or a bundled name; default: all at hand.")] = None
    host: Annotated[str, arg(help="Address to listen at.")] = "127.0.0.1"
    port: Annotated[int, arg(help="Port; 0 is any free one.")] = 8000
    device: Annotated[str, arg(help="auto, cpu, cuda, …")] = "auto"

    def run(self) -> int:
        """Serve until interrupted."""
        try:
            from unnoise.studio import serve
        except ModuleNotFoundError as error:
            raise ValueError("the studio needs starlette and uvicorn: pip install 'unnoise[studio]'") from error
        bundled = {path.name: path for path in model_folders() if path.parent.name == "models"}
        chosen = [bundled.get(self.model, Path(self.model))] if self.model else model_folders()
        folders = [path for path in chosen if not _has_pictures(path)]
        serve(folders, self.host, self.port, device_named(self.device))
        return 0


@dataclass
class Demo:
    """Train a small model on the embedded corpus and show what it can do.

    Example: unnoise demo
    """

    minutes: Annotated[float, arg(help="Minutes of training.")] = 2.5
    out: Annotated[Path, arg(help="Folder to write.")] = Path("runs/demo")
    seed: int = 0

    def run(self) -> int:
        """The main job, from noise to text."""
        from unnoise.demo import demo

        return demo(self.minutes, self.out, self.seed)


Command = Annotated[
    Annotated[Train, subcommand("train")]
    | Annotated[Generate, subcommand("generate")]
    | Annotated[Infill, subcommand("infill")]
    | Annotated[Complete, subcommand("complete")]
    | Annotated[Inpaint, subcommand("inpaint")]
    | Annotated[Correct, subcommand("correct")]
    | Annotated[Score, subcommand("score")]
    | Annotated[Eval, subcommand("eval")]
    | Annotated[Info, subcommand("info")]
    | Annotated[Ls, subcommand("ls")]
    | Annotated[Plot, subcommand("plot")]
    | Annotated[Studio, subcommand("studio")]
    | Annotated[Demo, subcommand("demo")],
    None,
]


def write_sheet(pictures: Any, out: Path, quiet: bool, columns: int = 10) -> int:
    """Write images as one PNG, and say so."""
    from unnoise.data.images import sheet

    sheet(pictures, min(columns, len(pictures)), out)
    print(json.dumps({"out": str(out), "images": len(pictures)}) if quiet else f"wrote {out}: {len(pictures)} images")
    return 0


def model_folders() -> list[Path]:
    """Bundled models, then those in runs/, oldest first."""
    bundled = sorted(path.parent for path in (Path(__file__).parent / "models").glob("*/config.json"))
    runs = sorted(Path("runs").glob("*/config.json"), key=lambda path: path.stat().st_mtime)
    return [*bundled, *(path.parent for path in runs)]


def open_model(name: str | None, device: str) -> "Model":
    """The model that a person means: a folder, a bundled name, or the newest."""
    from unnoise.model import load

    return load(model_folders()[-1] if name is None else name).to(device_named(device))


def _has_pictures(folder: Path) -> bool:
    try:
        return json.loads((folder / "config.json").read_text())["codec"]["kind"] == "pixels"
    except (OSError, ValueError, KeyError, TypeError):
        return False


def device_named(name: str) -> str:
    """`auto` is CUDA where there is one, else the CPU."""
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"the device {name!r} cannot be used here: {str(error).splitlines()[0]}") from error
    return name


def _text(argument: str) -> str:
    from unnoise.data.corpus import read_text

    if argument == "-":
        return sys.stdin.read()
    if len(argument) < 500 and "\n" not in argument and Path(argument).is_file():
        return read_text(Path(argument))
    return argument


def main(arguments: list[str] | None = None) -> int:
    """Parse and run; returns the exit code."""
    command = tyro.cli(
        Command,  # pyright: ignore[reportArgumentType]
        prog="unnoise",
        description="Discrete diffusion models, text first: train, write, fill in, measure.",
        args=arguments,
        config=(OmitSubcommandPrefixes, FlagCreatePairsOff),
    )
    try:
        return command.run()
    except ValueError as error:
        print(f"unnoise: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        print("unnoise: stopped", file=sys.stderr)
        return 130


def entry() -> None:
    """The console script."""
    sys.exit(main())

"""Commands that show: what there is, pictures, the studio, the demo."""

import itertools
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from unnoise.command.base import Device, ModelName, Quiet, bundled, device_named, model_folders, open_model

if TYPE_CHECKING:
    from unnoise.model import Model


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
        if self.picture is not None:
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
            listed = exponents
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

        models = {
            path.name if bundled(path) else str(path): json.loads((path / "config.json").read_text()).get("method", "?")
            for path in model_folders()
        }
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
    """Draw a picture: the training curve, the noise schedule, the loss at each noise level, a chain as a filmstrip, or the
    quality of each sampler's texts against network calls.

    Example: unnoise plot chain --model wiki --out chain.png
    """

    kind: Annotated[Positional[str], arg(metavar="KIND", help="curve, schedule, loss, chain or quality.")]
    model: ModelName = None
    out: Annotated[Path | None, arg(help="The file, .png or .svg; default: KIND.png.")] = None
    data: Annotated[
        str | None, arg(help="Held-out text for `loss` (sotu by default), and to set beside the `quality`; as for train.")
    ] = None
    steps: Annotated[int, arg(help="Denoising steps of the chain.")] = 128
    judge: Annotated[
        str | None, arg(help="Who judges the quality: the folder of an ar model, wiki-ar (default), or smollm2 (extra `eval`).")
    ] = None
    samplers: Annotated[tuple[str, ...], arg(help="Whose quality; names from `unnoise ls`; default: five of them.")] = ()
    calls: Annotated[tuple[int, ...], arg(help="Network calls, at most; default: 16 32 64 128 256.")] = ()
    num_samples: Annotated[int, arg(help="Texts for each point of the quality.")] = 16
    seed: int = 0
    quiet: Quiet = False

    def run(self) -> int:
        """Draw, and say where."""
        from unnoise import plot

        out = self.out or Path(f"{self.kind}.png")
        more: dict[str, Any] = {}
        if self.kind not in ("curve", "schedule", "loss", "chain", "quality"):
            raise ValueError(f"unknown picture {self.kind!r}: use one of curve, schedule, loss, chain, quality")
        if self.kind == "curve":
            plot.plot_curve(Path(self.model) if self.model else model_folders()[-1], out)
        else:
            plot.check(out)
            model = open_model(self.model, "cpu")
            match self.kind:
                case "schedule":
                    plot.plot_schedule(model, out)
                case "loss":
                    plot.plot_loss(model, out, self.data or "sotu")
                case "chain":
                    plot.plot_chain(model, out, self.steps, self.seed)
                case _:
                    more["quality"] = self._quality(model, out)
        print(json.dumps({"out": str(out), **more}) if self.quiet else f"wrote {out}")
        return 0

    def _quality(self, model: "Model", out: Path) -> list[dict[str, Any]]:
        """Measure, with a line for each point as it comes, and draw."""
        from unnoise.data.corpus import corpus
        from unnoise.plot import plot_quality
        from unnoise.quality import CALLS, JUDGE, Quality, judge, qualities, weigh

        if model.codec.grid:
            raise ValueError("a judge reads texts, and this is a model of images")
        for name in self.samplers:
            model.check_sampler(name)
        by = judge(self.judge or JUDGE)
        real = None
        if self.data is not None:
            rows = corpus(self.data).texts(model.codec, "test", model.length).windows(200).tolist()
            real = weigh([model.codec.decode(row) for row in rows], by)
        found: list[Quality] = []
        for q in itertools.chain(
            [real] if real else [], qualities(model, by, self.samplers, self.calls or CALLS, self.num_samples, self.seed)
        ):
            if not self.quiet:
                if not found:
                    print(f"{'sampler':16s} {'calls':>5s} {'perplexity':>10s} {'entropy':>9s} {'distinct':>9s}")
                calls = q.calls or "–"
                print(f"{q.sampler:16s} {calls:>5} {q.perplexity:10.2f} {q.entropy:9.3f} {q.distinct:9.3f}", flush=True)
            found.append(q)
        plot_quality(found, out, f"{model.method.name}, judged by {self.judge or JUDGE}")
        return [q._asdict() for q in found]


@dataclass
class Studio:
    """Open a local page to watch, fill in, correct and compare.

    Example: unnoise studio --model runs/first --port 8000
    """

    model: Annotated[str | None, arg(help="Folder of a trained model, or a bundled name; default: all at hand.")] = None
    host: Annotated[str, arg(help="Address to listen at.")] = "127.0.0.1"
    port: Annotated[int, arg(help="Port; 0 is any free one.")] = 8000
    device: Device = "auto"

    def run(self) -> int:
        """Serve until interrupted."""
        try:
            from unnoise.studio import serve
        except ModuleNotFoundError as error:
            raise ValueError("the studio needs starlette and uvicorn: pip install 'unnoise[studio]'") from error
        named = {path.name: path for path in model_folders() if bundled(path)}
        chosen = [named.get(self.model, Path(self.model))] if self.model else model_folders()
        folders = [path for path in chosen if not _has_pictures(path)]
        if self.model and not folders:
            raise ValueError(f"{self.model} is a model of images, which the studio does not show")
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


def _has_pictures(folder: Path) -> bool:
    try:
        return json.loads((folder / "config.json").read_text())["codec"]["kind"] == "pixels"
    except (OSError, ValueError, KeyError, TypeError):
        return False

"""The commands `unnoise convert`, `export` and `push`, which write a model in a format or upload it."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from unnoise.cli.command_base import Json, Layout, open_model, show_result
from unnoise.registry import parse_settings

SOURCE = "Folder of a model, name of a bundled model, or Hugging Face hub id."


@dataclass
class ConvertCommand:
    """Convert a model to the format of this package.

    The copy may have weights of a different data type and other recommended sampling options.

    Example: unnoise convert runs/first --out small --dtype int8 --sampling sampler=confidence,steps=64,temperature=0.9
    """

    source: Annotated[Positional[str], arg(metavar="SRC", help=SOURCE)]
    out: Annotated[Path, arg(help="Output folder.")]
    dtype: Literal["float32", "float16", "bfloat16", "int8"] | None = None
    """Data type of the saved weights. int8 stores a scale for each row of a matrix. Weights are loaded as float32. Default:
    unchanged."""
    sampling: str | None = None
    """Recommended sampling options to set, such as sampler=confidence,steps=64 (also temperature and top_p). Other options keep
    their values; none removes all."""
    mask_token: Annotated[int | None, arg(help="Mask token of a published model, if its files do not name it.")] = None
    method: Annotated[str | None, arg(help="Method of a published model, such as bd3lm:block=4.")] = None
    codec: str | None = None
    """Codec of a published model without a tokenizer: text8-35, gpt2:FOLDER, another codec, or a tokenizer.json or its
    folder."""
    as_json: Json = False

    def run(self) -> int:
        from unnoise.checkpoint.format import WEIGHTS
        from unnoise.model.io import checked_sampling

        _check_new(self.out)
        model = open_model(self.source, "cpu", mask_token=self.mask_token, method=self.method, codec=self.codec)
        if self.sampling is not None:
            kept: dict[str, Any] = {} if self.sampling == "none" else dict(model.sampling)
            model.sampling = checked_sampling(model, kept | sampling_settings(self.sampling))
        model.save(self.out, self.dtype)
        size = (self.out / WEIGHTS).stat().st_size
        largest = max(model.weights().values(), key=lambda weight: weight.numel())
        dtype = self.dtype or str(largest.dtype).removeprefix("torch.")
        found = {"out": str(self.out), "dtype": dtype, "bytes": size, "parameters": model.num_parameters}
        lines = [f"wrote {self.out}: {model.num_parameters:,} parameters as {dtype}, {size / 1e6:.2f} MB"]
        if model.sampling:
            lines.append("recommended sampling: " + ", ".join(f"{name} {value}" for name, value in model.sampling.items()))
        return show_result(self.as_json, found | {"sampling": model.sampling}, lines)


def _check_new(out: Path) -> None:
    """Raise ValueError if --out cannot be written or holds a model."""
    from unnoise.checkpoint.format import CONFIG
    from unnoise.training.run import check_out

    check_out(out)
    if (out / CONFIG).exists():
        raise ValueError(f"{out} already holds a model: choose another --out")


def sampling_settings(text: str) -> dict[str, Any]:
    """Parse `--sampling`: settings separated by commas. The fields of a sampler follow its colon."""
    from unnoise.model.sampling_options import RECOMMENDED

    found: dict[str, Any] = {}
    last = ""
    for piece in filter(None, text.split(",") if text != "none" else ()):
        name, _, value = (part.strip() for part in piece.partition("="))
        if name in RECOMMENDED and value:
            found[name] = value if name == "sampler" else parse_settings("sampling", piece, "model")[name]
            last = name
        elif last == "sampler" and ":" in found[last]:
            found[last] += f",{piece}"
        else:
            raise ValueError(f"--sampling takes none, or some of {', '.join(RECOMMENDED)} as in steps=64, found {piece!r}")
    return found


@dataclass
class ExportCommand:
    """Export a ddit model to the checkpoint layout of a paper's code.

    Example: unnoise export runs/ddit --to mdlm --out runs/ddit-mdlm
    """

    source: Annotated[Positional[str], arg(metavar="MODEL", help=SOURCE)]
    to: Annotated[Layout, arg(help="Checkpoint layout.")]
    out: Annotated[Path, arg(help="Output folder.")]
    as_json: Json = False

    def run(self) -> int:
        from unnoise.checkpoint.published.export import export

        _check_new(self.out)
        model = open_model(self.source, "cpu")
        file = export(model, self.to, self.out)
        size = file.stat().st_size
        found = {"out": str(self.out), "to": self.to, "file": file.name, "bytes": size}
        shown = f"wrote {self.out}: {model.num_parameters:,} parameters as {self.to}, {size / 1e6:.2f} MB in {file.name}"
        return show_result(self.as_json, found, [shown])


@dataclass
class PushCommand:
    """Upload a model and its card to the Hugging Face hub.

    This needs the extra `hub`. Afterwards `--model OWNER/NAME` loads the model.

    Example: unnoise push runs/first owner/name --private
    """

    source: Annotated[Positional[str], arg(metavar="MODEL", help=SOURCE)]
    repo_id: Annotated[Positional[str], arg(metavar="REPO_ID", help="Repository, owner/name. HF_ENDPOINT selects another hub.")]
    to: Layout | None = None
    """Checkpoint layout, as for `unnoise export`; default: the format of this package."""
    private: Annotated[bool, arg(help="Create a private repository.")] = False
    message: Annotated[str | None, arg(help="Commit message.")] = None
    license: Annotated[str | None, arg(help="License of the model by its name on the hub, such as apache-2.0.")] = None
    as_json: Json = False

    def run(self) -> int:
        from unnoise.checkpoint.published.hub import Upload
        from unnoise.model.push import push

        upload = Upload.begin(self.repo_id)  # fail before a large model is loaded
        pushed = push(
            open_model(self.source, "cpu"), upload, self.to, private=self.private, message=self.message, license=self.license
        )
        shown = f"uploaded {', '.join(pushed.files)} to {pushed.url}, {sum(pushed.files.values()) / 1e6:.2f} MB"
        return show_result(self.as_json, asdict(pushed) | {"to": self.to}, [shown])

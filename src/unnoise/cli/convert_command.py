"""`unnoise convert`.

`unnoise export`.

`unnoise push`.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from unnoise.cli.command_base import Json, Layout, open_model


@dataclass
class ConvertCommand:
    """Convert a model: to the format of this package, to smaller weights, or to other recommended sampling options.

    Example: unnoise convert runs/first --out small --dtype int8 --sampling sampler=confidence,steps=64,temperature=0.9
    """

    source: Annotated[
        Positional[str],
        arg(metavar="SRC", help="Folder of a model, name of a bundled model, or Hugging Face hub id."),
    ]
    out: Annotated[Path, arg(help="Output folder.")]
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16", "int8"] | None,
        arg(
            help="Data type of the saved weights. int8 stores a scale for each row of a matrix. Weights are loaded as float32. "
            "Default: unchanged."
        ),
    ] = None
    sampling: Annotated[
        str | None,
        arg(
            help="Recommended sampling options to set, such as sampler=confidence,steps=64 (also temperature and top_p). "
            "Other options keep their values; none removes all."
        ),
    ] = None
    mask_token: Annotated[int | None, arg(help="Mask token of a published model, if its files do not name it.")] = None
    method: Annotated[str | None, arg(help="Method of a published model, such as bd3lm:block=4.")] = None
    codec: Annotated[
        str | None,
        arg(
            help="Codec of a published model without a tokenizer: text8-35, gpt2:FOLDER, another codec, or a tokenizer.json "
            "or its folder."
        ),
    ] = None
    as_json: Json = False

    def run(self) -> int:
        from unnoise.checkpoint.format import CONFIG, WEIGHTS
        from unnoise.model.io import checked_sampling
        from unnoise.training.run import check_out

        check_out(self.out)
        if (self.out / CONFIG).exists():
            raise ValueError(f"{self.out} already holds a model: choose another --out")
        model = open_model(self.source, "cpu", mask_token=self.mask_token, method=self.method, codec=self.codec)
        if self.sampling is not None:
            kept: dict[str, Any] = {} if self.sampling == "none" else dict(model.sampling)
            model.sampling = checked_sampling(model, kept | sampling_settings(self.sampling))
        model.save(self.out, self.dtype)
        size = (self.out / WEIGHTS).stat().st_size
        largest = max(model.weights().values(), key=lambda weight: weight.numel())
        dtype = self.dtype or str(largest.dtype).removeprefix("torch.")
        if self.as_json:
            found = {"out": str(self.out), "dtype": dtype, "bytes": size, "parameters": model.num_parameters}
            print(json.dumps(found | {"sampling": model.sampling}))
            return 0
        print(f"wrote {self.out}: {model.num_parameters:,} parameters as {dtype}, {size / 1e6:.2f} MB")
        if model.sampling:
            print("recommended sampling: " + ", ".join(f"{name} {value}" for name, value in model.sampling.items()))
        return 0


def sampling_settings(text: str) -> dict[str, Any]:
    """Parse `--sampling`: settings separated by commas. The fields of a sampler follow its colon."""
    from unnoise.model.sampling_options import RECOMMENDED

    found: dict[str, Any] = {}
    last = ""
    for piece in filter(None, text.split(",") if text != "none" else ()):
        name, _, value = (part.strip() for part in piece.partition("="))
        if name in RECOMMENDED and value:
            found[name] = value if name == "sampler" else _number(value)
            last = name
        elif last == "sampler" and ":" in found[last]:
            found[last] += f",{piece}"
        else:
            raise ValueError(f"--sampling takes none, or some of {', '.join(RECOMMENDED)} as in steps=64, found {piece!r}")
    return found


def _number(text: str) -> int | float | str:
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        return text


@dataclass
class ExportCommand:
    """Export a model with the network ddit to the checkpoint layout of a paper's code.

    Example: unnoise export runs/ddit --to mdlm --out runs/ddit-mdlm
    """

    source: Annotated[Positional[str], arg(metavar="MODEL", help="Folder of a model, or Hugging Face hub id.")]
    to: Annotated[Layout, arg(help="Checkpoint layout.")]
    out: Annotated[Path, arg(help="Output folder.")]
    as_json: Json = False

    def run(self) -> int:
        from unnoise.checkpoint.format import CONFIG
        from unnoise.checkpoint.published.export import export
        from unnoise.training.run import check_out

        check_out(self.out)
        if (self.out / CONFIG).exists():
            raise ValueError(f"{self.out} already holds a model: choose another --out")
        model = open_model(self.source, "cpu")
        file = export(model, self.to, self.out)
        size = file.stat().st_size
        if self.as_json:
            print(json.dumps({"out": str(self.out), "to": self.to, "file": file.name, "bytes": size}))
        else:
            print(f"wrote {self.out}: {model.num_parameters:,} parameters as {self.to}, {size / 1e6:.2f} MB in {file.name}")
        return 0


@dataclass
class PushCommand:
    """Upload a model and its card to the Hugging Face hub (needs the extra `hub`). Then `--model OWNER/NAME` loads it.

    Example: unnoise push runs/first owner/name --private
    """

    source: Annotated[
        Positional[str], arg(metavar="MODEL", help="Folder of a model, name of a bundled model, or Hugging Face hub id.")
    ]
    repo_id: Annotated[Positional[str], arg(metavar="REPO_ID", help="Repository, owner/name. HF_ENDPOINT selects another hub.")]
    to: Annotated[
        Layout | None, arg(help="Checkpoint layout, as for `unnoise export`; default: the format of this package.")
    ] = None
    private: Annotated[bool, arg(help="Create a private repository.")] = False
    message: Annotated[str | None, arg(help="Commit message.")] = None
    license: Annotated[str | None, arg(help="License of the model by its name on the hub, such as apache-2.0.")] = None
    as_json: Json = False

    def run(self) -> int:
        from unnoise.checkpoint.published.hub import Upload
        from unnoise.model.push import push

        upload = Upload.begin(self.repo_id)  # fail before a large model is loaded
        model = open_model(self.source, "cpu")
        pushed = push(model, upload, self.to, private=self.private, message=self.message, license=self.license)
        if self.as_json:
            print(json.dumps(asdict(pushed) | {"to": self.to}))
        else:
            size = sum(pushed.files.values())
            print(f"uploaded {', '.join(pushed.files)} to {pushed.url}, {size / 1e6:.2f} MB")
        return 0

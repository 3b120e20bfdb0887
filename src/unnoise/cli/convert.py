"""`unnoise convert`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from unnoise.cli.base import Json, open_model


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
        from unnoise.checkpoint.ours import CONFIG, WEIGHTS
        from unnoise.model.options import checked_sampling
        from unnoise.training.prepare import check_out

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
    from unnoise.model.options import RECOMMENDED

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

"""`unnoise convert`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from unnoise.cli.base import Json, open_model


@dataclass
class ConvertCommand:
    """Save a model in another form: a published one in our format, with smaller weights, or with recommended sampling options.

    Example: unnoise convert runs/first --out small --dtype int8 --sampling sampler=confidence,steps=64,temperature=0.9
    """

    source: Annotated[
        Positional[str],
        arg(metavar="SRC", help="Folder of a trained model, a bundled name, or a model from elsewhere (a path, or a hub id)."),
    ]
    out: Annotated[Path, arg(help="Folder to write.")]
    dtype: Annotated[
        Literal["float32", "float16", "bfloat16", "int8"] | None,
        arg(
            help="Type of the weights in the file (int8 has a scale for each row of a matrix); float32 once loaded; "
            "default: unchanged."
        ),
    ] = None
    sampling: Annotated[
        str | None,
        arg(
            help="Recommended options to set, some of sampler=…,steps=…,temperature=…,top_p=…, the others stay; none "
            "removes them all."
        ),
    ] = None
    mask_token: Annotated[int | None, arg(help="Of a published diffusion model: its mask, where its files do not say.")] = None
    method: Annotated[str | None, arg(help="Of a published diffusion model: what it is, such as bd3lm:block=4.")] = None
    codec: Annotated[
        str | None,
        arg(
            help="Of a published model without a tokenizer: text8-35, gpt2:FOLDER, another name of a codec, a tokenizer.json, "
            "or a folder with one."
        ),
    ] = None
    as_json: Json = False

    def run(self) -> int:
        """Load, save, and say how large it is."""
        from unnoise.checkpoint.ours import CONFIG, WEIGHTS
        from unnoise.model.options import checked_sampling
        from unnoise.training.prepare import check_out

        check_out(self.out)
        if (self.out / CONFIG).exists():
            raise ValueError(f"{self.out} holds a model already: choose another --out")
        model = open_model(self.source, "cpu", self.mask_token, self.method, self.codec)
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
            print("it recommends " + ", ".join(f"{name} {value}" for name, value in model.sampling.items()))
        return 0


def sampling_settings(text: str) -> dict[str, Any]:
    """What `--sampling` means: settings with commas between them; a sampler's own fields follow its colon."""
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
    """The number that is meant, or the text itself."""
    try:
        return int(text) if text.lstrip("+-").isdigit() else float(text)
    except ValueError:
        return text

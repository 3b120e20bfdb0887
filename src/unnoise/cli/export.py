"""`unnoise export`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from unnoise.cli.base import Json, Layout, open_model


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
        from unnoise.checkpoint.export import export
        from unnoise.checkpoint.ours import CONFIG
        from unnoise.training.prepare import check_out

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

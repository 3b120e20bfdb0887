"""`unnoise studio`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from unnoise.cli.base import Device, bundled, device_named, model_folders


@dataclass
class StudioCommand:
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


def _has_pictures(folder: Path) -> bool:
    try:
        return json.loads((folder / "config.json").read_text())["codec"]["kind"] == "pixels"
    except (OSError, ValueError, KeyError, TypeError):
        return False

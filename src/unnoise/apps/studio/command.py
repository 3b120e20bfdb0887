"""The command `unnoise studio`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from unnoise.cli.command_base import Device, bundled, device_named, model_folders


@dataclass
class StudioCommand:
    """Open a local page to sample, fill in, correct and compare.

    Example: unnoise studio --model runs/first --port 8000
    """

    model: Annotated[
        str | None, arg(help="Folder of a trained model, or a bundled name; default: all bundled and in runs/.")
    ] = None
    host: Annotated[str, arg(help="Address to listen on; if other machines can reach it, they need a token.")] = "127.0.0.1"
    port: Annotated[int, arg(help="Port; 0 is any free port.")] = 8000
    token: Annotated[
        str | None, arg(help="Access token; default: none at 127.0.0.1, otherwise a random token, which is printed.")
    ] = None
    device: Device = "auto"

    def run(self) -> int:
        try:
            from unnoise.apps.studio.app import serve
        except ModuleNotFoundError as error:
            raise ValueError("the studio needs starlette and uvicorn: pip install 'unnoise[studio]'") from error
        named = {path.name: path for path in model_folders() if bundled(path)}
        folders = [named.get(self.model, Path(self.model))] if self.model else model_folders()
        serve(folders, host=self.host, port=self.port, device=device_named(self.device), token=self.token)
        return 0

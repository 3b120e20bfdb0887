"""`unnoise push`."""

import json
from dataclasses import asdict, dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from unnoise.cli.base import Json, Layout, open_model


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
        pushed = push(open_model(self.source, "cpu"), upload, self.to, self.private, self.message, self.license)
        if self.as_json:
            print(json.dumps(asdict(pushed) | {"to": self.to}))
        else:
            size = sum(pushed.files.values())
            print(f"uploaded {', '.join(pushed.files)} to {pushed.url}, {size / 1e6:.2f} MB")
        return 0

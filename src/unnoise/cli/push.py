"""`unnoise push`."""

import json
from dataclasses import asdict, dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from unnoise.cli.base import Json, Layout, open_model


@dataclass
class PushCommand:
    """Upload a model with its card to the Hugging Face hub, from where `--model OWNER/NAME` reads it (the extra `hub`).

    Example: unnoise push runs/first owner/name --private
    """

    source: Annotated[
        Positional[str], arg(metavar="MODEL", help="Folder of a trained model, a bundled name, or a published one.")
    ]
    repo_id: Annotated[
        Positional[str], arg(metavar="REPO_ID", help="Where it is to be: owner/name. HF_ENDPOINT names another hub.")
    ]
    to: Annotated[Layout | None, arg(help="A published layout, as for `unnoise export`; default: our own format.")] = None
    private: Annotated[bool, arg(help="A repository that only its owner sees.")] = False
    message: Annotated[str | None, arg(help="Of the commit.")] = None
    license: Annotated[str | None, arg(help="Of the model, by its name on the hub, such as apache-2.0.")] = None
    as_json: Json = False

    def run(self) -> int:
        """Load, upload, and say where it is."""
        from unnoise.checkpoint.published.hub import Upload
        from unnoise.model.push import push

        upload = Upload.begin(self.repo_id)  # before a large model is read
        pushed = push(open_model(self.source, "cpu"), upload, self.to, self.private, self.message, self.license)
        if self.as_json:
            print(json.dumps(asdict(pushed) | {"to": self.to}))
        else:
            size = sum(pushed.files.values())
            print(f"{pushed.url} has {', '.join(pushed.files)}, {size / 1e6:.2f} MB")
        return 0

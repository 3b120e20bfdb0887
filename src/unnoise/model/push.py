"""Uploading a model to the Hugging Face hub, with a card, in our own format or in a published layout."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unnoise.checkpoint.published.hub import README, Upload
from unnoise.model.card import made_card

if TYPE_CHECKING:
    from unnoise.model.model import Model


@dataclass(frozen=True)
class Pushed:
    """What was uploaded. url: of the repository. files: their sizes in bytes, by name."""

    url: str
    files: dict[str, int]


def push(
    model: "Model",
    upload: Upload,
    to: str | None = None,
    private: bool = False,
    message: str | None = None,
    license: str | None = None,
) -> Pushed:
    """Upload a model to a repository; see `Model.push`."""
    with tempfile.TemporaryDirectory(prefix="unnoise-push-") as made:
        folder = Path(made)
        if to is None:
            model.save(folder)
        else:
            from unnoise.checkpoint.export import export

            export(model, to, folder)
        (folder / README).write_text(readme(model, upload.repo_id, to, license), encoding="utf-8")
        sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        words = message or f"Upload a model of {model.method.name}{f' in the layout {to}' if to else ''}"
        return Pushed(upload.send(folder, private, words), sizes)


def readme(model: "Model", repo_id: str, to: str | None, license: str | None) -> str:
    """README.md: front matter for the hub, the model's own card or one that is made, and how to load it."""
    from huggingface_hub import ModelCardData

    method = model.method.name.partition(":")[0]
    task = "unconditional-image-generation" if model.codec.grid else "text-generation"
    tags = ["unnoise", "discrete-diffusion", method, *([] if to in (None, method) else [to])]
    data = ModelCardData(license=license, library_name="unnoise", pipeline_tag=task, tags=tags)
    layout = f"The files are in the layout of {to}'s own code.\n\n" if to else ""
    loading = (
        f"## How to load it\n\n{layout}    pip install 'unnoise[hub]'\n    unnoise generate --model {repo_id}\n\n"
        f'In Python: `unnoise.load("{repo_id}")`.\n'
    )
    card = model.card or made_card(model, repo_id.partition("/")[2])
    return f"---\n{data.to_yaml()}\n---\n\n{card.rstrip()}\n\n{loading}"

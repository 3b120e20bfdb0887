"""Uploads to the Hugging Face hub, with a model card, in our own format or in a published layout."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

from unnoise.checkpoint.published.hub import README, Upload
from unnoise.data import codec_kind
from unnoise.model.model import Model


def known_rows(model: Model) -> dict[str, str]:
    """Return the rows of a card that need no measurement: method, network, codec, training and recommended sampling."""
    steps, seconds = model.notes.get("steps"), model.notes.get("seconds")
    training = [f"{steps:,} steps"] if isinstance(steps, int) else []
    if isinstance(seconds, int | float):
        training.append(f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours")
    return {
        "method": f"{model.method.name} ({model.method.title})",
        "network": f"{model.config()['network']['name']}, {model.num_parameters:,} parameters",
        "codec": f"{codec_kind(model.codec)}, {model.codec.vocab} tokens; at most {model.length} of them",
        "training": ", ".join(training),
        "recommended sampling": ", ".join(f"{name} {value}" for name, value in model.sampling.items()),
    }


def table(rows: dict[str, str]) -> str:
    """Return the rows that are not empty as a Markdown table."""
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {words} |" for name, words in rows.items() if words)])


def made_card(model: Model, name: str) -> str:
    """Return a card for a model without one, with the held-out bits that its training measured."""
    rows = known_rows(model)
    bits = model.notes.get("valid_bits_per_char")
    if isinstance(bits, int | float):
        rows[f"held-out bits per {model.codec.unit}"] = f"{bits:.3f} at the end of training"
    rows["labels"] = ", ".join(model.labels)
    rows |= {word: str(model.notes[word]) for word in ("family", "origin") if word in model.notes}
    return f"# {name}\n\nA discrete diffusion model. {model.method.paper}\n\n{table(rows)}\n"


@dataclass(frozen=True)
class Pushed:
    """An upload. url: URL of the repository. files: size of each file in bytes."""

    url: str
    files: dict[str, int]


def push(
    model: Model,
    upload: Upload,
    to: str | None = None,
    *,
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
            from unnoise.checkpoint.published.export import export

            export(model, to, folder)
        (folder / README).write_text(readme(model, upload.repo_id, to, license), encoding="utf-8")
        sizes = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        words = message or f"Upload a model of {model.method.name}{f' in the layout {to}' if to else ''}"
        return Pushed(upload.send(folder, private, words), sizes)


def readme(model: Model, repo_id: str, to: str | None, license: str | None) -> str:
    """Return README.md: front matter for the hub, the card, and instructions for loading."""
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

"""What a model says of itself in the table of a card: the rows that `unnoise info` knows, without measuring anything."""

from typing import TYPE_CHECKING

from unnoise.data import codec_kind

if TYPE_CHECKING:
    from unnoise.model.model import Model


def known_rows(model: "Model") -> dict[str, str]:
    """Method, network, codec, training and recommended sampling, by name; a row of which nothing is known is empty."""
    return {
        "method": f"{model.method.name} ({model.method.title})",
        "network": f"{model.config()['network']['name']}, {model.num_parameters:,} parameters",
        "codec": f"{codec_kind(model.codec)}, {model.codec.vocab} tokens; at most {model.length} of them",
        "training": _training(model),
        "recommended sampling": ", ".join(f"{name} {value}" for name, value in model.sampling.items()),
    }


def table(rows: dict[str, str]) -> str:
    """Rows as a table in Markdown, without those that are empty."""
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {words} |" for name, words in rows.items() if words)])


def made_card(model: "Model", name: str) -> str:
    """A card for a model that has none: what it is, and the bits that its training measured on held-out texts."""
    rows = known_rows(model)
    bits = model.notes.get("valid_bits_per_char")
    if isinstance(bits, int | float):
        rows[f"held-out bits per {model.codec.unit}"] = f"{bits:.3f} at the end of training"
    rows["labels"] = ", ".join(model.labels)
    rows |= {word: str(model.notes[word]) for word in ("family", "origin") if word in model.notes}
    return f"# {name}\n\nA discrete diffusion model. {model.method.paper}\n\n{table(rows)}\n"


def _training(model: "Model") -> str:
    steps, seconds = model.notes.get("steps"), model.notes.get("seconds")
    shown = [f"{steps:,} steps"] if isinstance(steps, int) else []
    if isinstance(seconds, int | float):
        shown.append(f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours")
    return ", ".join(shown)

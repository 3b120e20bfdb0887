"""Training and held-out sequences of a run, from a source or from tokens."""

from torch import Tensor

from unnoise.data.texts import SequenceData, Sequences, Source, Windows
from unnoise.model.model import Model
from unnoise.process.state import PAD


def load_datasets(source: Source | Tensor, model: Model, labels: Tensor | None = None) -> tuple[SequenceData, SequenceData]:
    """Return the training sequences and the held-out ones."""
    if isinstance(source, Tensor):
        return _token_texts(source, model, labels)
    names = source.label_names
    if names and len(model.labels) < len(names):
        found = f"has {len(model.labels)}" if model.labels else "has none"
        raise ValueError(f"the data have {len(names)} labels and the model {found}: build it with labels={len(names)}")
    if names and model.labels[: len(names)] != names:
        raise ValueError(
            f"the data's labels are {', '.join(names[:9])} in this order, but the model's are {', '.join(model.labels[:9])}: "
            f"build it with labels={list(names[:9])}"
        )
    held_out = next(name for name in ("valid", "test", "train") if name in source.splits)
    return model.texts(source, "train"), model.texts(source, held_out)


def _token_texts(tokens: Tensor, model: Model, labels: Tensor | None) -> tuple[SequenceData, SequenceData]:
    cut = max(len(tokens) * 95 // 100, len(tokens) - 100_000)
    characters = _characters_per_token(tokens, model)
    if tokens.dim() == 2:
        if labels is None:
            return Sequences.from_table(tokens[:cut], characters=characters), Sequences.from_table(
                tokens[cut:], characters=characters
            )
        if labels.shape != tokens.shape[:1]:
            raise ValueError(f"there are {len(tokens)} rows and {len(labels)} labels: give one for each row")
        if len(labels) and int(labels.max()) >= len(model.labels):
            raise ValueError(f"labels go up to {int(labels.max())}, and the model was built with {len(model.labels)}")
        return Sequences.from_table(tokens[:cut], labels[:cut], characters), Sequences.from_table(
            tokens[cut:], labels[cut:], characters
        )
    if labels is not None:
        raise ValueError("labels go with texts or with rows [N, L], not with one stream of tokens")
    return Windows(tokens[:cut], model.length, characters), Windows(tokens[cut:], model.length, characters)


def _characters_per_token(tokens: Tensor, model: Model) -> float:
    """Return the number of characters per token, from the first tokens; 1 for images."""
    some = tokens.flatten()[:100_000]
    real = [token for token in some.tolist() if token not in (PAD, model.codec.eos)]
    return 1.0 if model.codec.grid or not real else max(model.codec.count(model.codec.decode(real)), 1) / len(real)

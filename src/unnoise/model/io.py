"""Saving a model as a folder, and loading it again."""

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from unnoise.checkpoint.format import (
    CARD,
    CONFIG,
    DIGEST,
    FORMAT,
    WEIGHTS,
    check_precision,
    digest,
    folder_of,
    narrowed,
    other_weights,
    packed,
    read_card,
    read_config,
    read_weights,
)
from unnoise.checkpoint.published import published_model
from unnoise.checkpoint.published.hub import hub_folder, is_hub_id
from unnoise.checkpoint.published.reader import Choices, Published
from unnoise.checkpoint.published.tokenizer_files import with_codec
from unnoise.data import Codec, codec_from, codec_kind
from unnoise.files import write_atomically
from unnoise.method_table import method as method_named
from unnoise.model.parts import needed_fields
from unnoise.model.sampling_options import checked_sampling
from unnoise.network.network_base import config_of_network, network_name, rebuild_network

if TYPE_CHECKING:
    from unnoise.model.model import Model

EXTRA_SUFFIXES = (".gz", ".txt")
LARGEST_EXTRA = 16 * 2**20  # bytes


def config_of(model: "Model") -> dict[str, Any]:
    """What config.json holds; ValueError if the model has a part that could not be found again."""
    return {
        "format": FORMAT,
        "method": model.method.name,
        "length": model.length,
        "labels": list(model.labels),
        "codec": {"kind": codec_kind(model.codec), **model.codec.config()},
        "network": {"name": network_name(model.network), "config": config_of_network(model.network)},
        "notes": model.notes,
        **({"whole_texts": True} if model.whole_texts else {}),
        **({"sampling": checked_sampling(model, model.sampling)} if model.sampling else {}),
    }


def save(model: "Model", folder: Path, weights: dict[str, Tensor] | None = None, dtype: str | None = None) -> None:
    """Write the folder; each file is there whole or not at all. weights: instead of the model's own. dtype: of the weights in
    the file, float32, float16, bfloat16 or int8; as they are by default."""
    if dtype is not None:
        check_precision(dtype)
    config = config_of(model)
    try:
        described = json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        raise ValueError(f"the configuration of the network or codec is not plain JSON ({error})") from error
    try:
        kept, about = narrowed(model.weights() if weights is None else weights, dtype)
        content = packed(kept, {DIGEST: digest(config, model.codec.identity()), **about})
    except ValueError as error:
        raise ValueError(f"the weight {error}: such a model is not saved") from error
    folder.mkdir(parents=True, exist_ok=True)
    for name, extra in model.extra_files.items():
        write_atomically(folder / name, extra)
    model.codec.save(folder)
    if model.card:
        write_atomically(folder / CARD, model.card.encode())
    write_atomically(folder / WEIGHTS, content)
    write_atomically(folder / CONFIG, described.encode())


def load(
    path: str | Path, mask_token: int | None = None, method: str | None = None, codec: str | Path | Codec | None = None
) -> "Model":
    """A saved model from its folder, or a bundled one by its name ("wiki").

    Also models that were trained elsewhere, by their path or their id on the Hugging Face hub ("owner/name", the extra `hub`).
    Diffusion models in their published layouts: MDLM, SEDD, BD3-LM, Duo, UDLM, GIDD, Flex-MDM (also as Lightning's
    checkpoints), LLaDA, Dream, A2D, SDAR, Fast-dLLM v2, MD4. Causal language models, as models of the method `ar`: a 🤗 folder
    (GPT-2, Llama, Mistral, Qwen2, Qwen3), a .gguf file, a .bin of llama2.c with its tokenizer.bin, or "smollm2".

    mask_token, method: for a published diffusion model, where its files do not say which token is the mask, or what it is
    (such as "bd3lm:block=4"). codec: for a published model without a tokenizer, the one that it was trained with: a name of
    `unnoise.codec` ("text8-35", "gpt2:FOLDER"), a tokenizer.json, a folder that holds one, or a codec.
    """
    name, folder = _name(path), located(path)
    published = published_model(folder, Choices(name, mask_token, method))
    if published is not None:
        return from_published(published if codec is None else with_codec(published, codec), name)
    folder = Path(folder)
    if mask_token is not None or method is not None or codec is not None:
        raise ValueError("mask_token, method and codec are for published models: a model of ours knows its own")
    config = read_config(folder)
    model = without_weights(folder, config)
    if not (folder / WEIGHTS).exists():
        raise ValueError(f"{folder} holds no weights: {WEIGHTS} is missing{other_weights(folder)}")
    try:
        put_weights(model, read_weights(folder / WEIGHTS, digest(config, model.codec.identity())))
    except ValueError as error:
        raise ValueError(f"{folder / WEIGHTS} does not fit {CONFIG}: {error}") from error
    model.notes = config["notes"]
    model.extra_files = read_extra_files(folder)
    model.card = read_card(folder)
    model.network.eval()
    return model


def read_extra_files(folder: Path) -> dict[str, bytes]:
    """Return the small files of a model folder that belong to applications, such as a word list, by name."""
    found = (path for path in sorted(folder.iterdir()) if path.suffix in EXTRA_SUFFIXES and path.is_file())
    return {path.name: path.read_bytes() for path in found if path.stat().st_size <= LARGEST_EXTRA}


def located(path: str | Path) -> str | Path:
    """Where a model is: the folder of a bundled one, of one from the hub, or the path itself."""
    folder = folder_of(path)
    if folder != Path(path):
        return folder
    return hub_folder(str(path)) if is_hub_id(path) else path


def _name(path: str | Path) -> str:
    """What a model is called by its path."""
    return Path(path).name or Path(path).resolve().name


def from_published(published: Published, origin: str) -> "Model":
    """A model from elsewhere as one of ours: its tensors are taken as they are, memory-mapped where they lie so on the disk."""
    from unnoise.model.model import Model

    entry, network = method_named(published.method), network_without_weights(published)
    weights = dict(published.weights())
    check_weights(network.state_dict(), weights)
    network.load_state_dict(weights, assign=True)
    model = Model(entry, published.codec, network, published.length, published.labels)
    model.notes = {"origin": origin, "family": published.family, **published.notes}
    if published.guess:
        warnings.warn(f"{origin}: {published.guess}", stacklevel=3)
    network.eval()
    return model


def network_without_weights(published: Published) -> nn.Module:
    """The network of a published model on the meta device, where nothing is allocated and nothing drawn."""
    needed = needed_fields(method_named(published.method), published.codec.vocab, published.length)
    with torch.device("meta"):
        return rebuild_network(published.network, published.config | {"length": needed["length"]})


def without_weights(folder: Path, config: dict[str, Any]) -> "Model":
    """The model that a configuration describes, with fresh weights."""
    from unnoise.model.model import Model

    try:
        entry = method_named(config["method"])
        codec = codec_from(config["codec"], folder)
        network = rebuild_network(config["network"]["name"], config["network"]["config"])
        model = Model(entry, codec, network, config["length"], config["labels"], bool(config.get("whole_texts")))
    except (KeyError, TypeError, AttributeError, OverflowError, MemoryError, RuntimeError) as error:
        raise ValueError(f"{folder / CONFIG} does not describe a model of this version of unnoise ({error})") from error
    try:
        model.sampling = checked_sampling(model, config.get("sampling", {}))
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG} recommends sampling options that cannot be used: {error}") from error
    return model


def put_weights(model: "Model", weights: dict[str, Tensor]) -> None:
    """Put weights in, or ValueError naming the first that is missing, unknown or of the wrong shape."""
    mine = model.weights()
    check_weights(mine, weights)
    with torch.no_grad():
        for name, value in mine.items():
            value.copy_(weights[name])


def check_weights(mine: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """ValueError naming the first weight that is missing, unknown or of the wrong shape."""
    for name in sorted(mine.keys() | weights.keys()):
        if name not in weights or name not in mine:
            raise ValueError(f"the weight {name} is {'missing' if name not in weights else 'unknown to this model'}")
        if weights[name].shape != mine[name].shape:
            raise ValueError(f"the weight {name} has shape {list(weights[name].shape)}, not {list(mine[name].shape)}")

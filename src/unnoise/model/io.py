"""Models in folders: saving, loading, and starting from the weights of another model.

`init_from` copies the weights with the same name and shape, for example from an autoregressive model to a diffusion model, or
from a model of a larger corpus. The mask of the new model is the start symbol of an autoregressive one (index K in both). An
autoregressive network predicts token i at the position of token i − 1, a diffusion model at the position of the mask itself;
training unlearns the shift (LLaDA, arXiv:2502.09992), soonest in block diffusion with small blocks (SDAR).
"""

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
    find_folder,
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
from unnoise.method_table import Method, method as method_named
from unnoise.model.model import Model
from unnoise.model.sampling_options import RECOMMENDED, SamplingOptions
from unnoise.network.gpt2 import Gpt2
from unnoise.network.network_base import config_of_network, named_fields, network_name, rebuild_network
from unnoise.network.transformer import Transformer, shift_taps
from unnoise.registry import accepted_arguments

EXTRA_SUFFIXES = (".gz", ".txt")
LARGEST_EXTRA = 16 * 2**20  # bytes


# ---- saving --------------------------------------------------------------------------------------------------------------


def describe(model: Model) -> dict[str, Any]:
    """Return the content of config.json, or raise ValueError if a part of the model is not registered."""
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


def checked_sampling(model: Model, found: Any) -> dict[str, Any]:
    """Return the sampling options that a model recommends, or raise ValueError if the model cannot sample with them."""
    if not isinstance(found, dict):
        raise ValueError(f"they must be a table of some of {', '.join(RECOMMENDED)}, found {found!r}")
    for name, value in found.items():
        if name not in RECOMMENDED:
            raise ValueError(f"{name!r} cannot be recommended: use some of {', '.join(RECOMMENDED)}")
        if value is None or (name == "sampler" and not isinstance(value, str)):
            raise ValueError(f"{name} must be {'the name of a sampler' if name == 'sampler' else 'a number'}, found {value!r}")
    model.check_sampler(SamplingOptions(**found).resolve(model.method.sampler))
    return {name: found[name] for name in RECOMMENDED if name in found}


def save(model: Model, folder: Path, weights: dict[str, Tensor] | None = None, dtype: str | None = None) -> None:
    """Write a model to a folder, each file atomically.

    weights: weights to save instead of the model's own.
    dtype: precision of the saved weights, float32, float16, bfloat16 or int8; by default unchanged.
    """
    if dtype is not None:
        check_precision(dtype)
    config = describe(model)
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


# ---- loading -------------------------------------------------------------------------------------------------------------


def load(
    path: str | Path, mask_token: int | None = None, method: str | None = None, codec: str | Path | Codec | None = None
) -> Model:
    """Load a model that `Model.save` wrote, a bundled model by its name ("wiki"), or a published model.

    Published models are given by a path or by their id on the Hugging Face hub ("owner/name", the extra `hub`). Layouts of
    diffusion models: MDLM, SEDD, BD3-LM, Duo, UDLM, GIDD and Flex-MDM (also as Lightning checkpoints), LLaDA, Dream, A2D, SDAR,
    Fast-dLLM v2 and MD4. Causal language models become models of the method `ar`: a 🤗 folder (GPT-2, Llama, Mistral, Qwen2,
    Qwen3), a .gguf file, a .bin of llama2.c with its tokenizer.bin, or "smollm2".

    mask_token: mask token of a published diffusion model whose files do not name it.
    method: method of a published diffusion model whose files do not name it, such as "bd3lm:block=4".
    codec: codec of a published model without a tokenizer: a name of `unnoise.codec` ("text8-35", "gpt2:FOLDER"), a
        tokenizer.json or its folder, or a Codec.
    """
    name, folder = Path(path).name or Path(path).resolve().name, located(path)
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
        weights = read_weights(folder / WEIGHTS, digest(config, model.codec.identity()))
        mine = model.weights()
        check_weights(mine, weights)
    except ValueError as error:
        raise ValueError(f"{folder / WEIGHTS} does not fit {CONFIG}: {error}") from error
    with torch.no_grad():
        for name, value in mine.items():
            value.copy_(weights[name])
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
    """Return the folder of a bundled model or of one from the hub, or the path itself."""
    folder = find_folder(path)
    if folder != Path(path):
        return folder
    return hub_folder(str(path)) if is_hub_id(path) else path


def from_published(published: Published, origin: str) -> Model:
    """Return a model with the tensors of a published one, which stay memory-mapped if they are."""
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
    """Return the network of a published model on the meta device, without memory for its weights."""
    needed = method_named(published.method).network_fields(published.codec.vocab, published.length)
    with torch.device("meta"):
        return rebuild_network(published.network, published.config | {"length": needed["length"]})


def without_weights(folder: Path, config: dict[str, Any]) -> Model:
    """Return the model that a configuration describes, with random weights."""
    try:
        entry = method_named(config["method"])
        codec = codec_from(config["codec"], folder)
        network = rebuild_network(config["network"]["name"], config["network"]["config"])
        labels, whole_texts = config["labels"], bool(config.get("whole_texts"))
        model = Model(entry, codec, network, config["length"], labels=labels, whole_texts=whole_texts)
    except (KeyError, TypeError, AttributeError, OverflowError, MemoryError, RuntimeError) as error:
        raise ValueError(f"{folder / CONFIG} does not describe a model of this version of unnoise ({error})") from error
    try:
        model.sampling = checked_sampling(model, config.get("sampling", {}))
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG} recommends sampling options that cannot be used: {error}") from error
    return model


def check_weights(mine: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Raise ValueError naming the first weight that is missing, unknown or of the wrong shape."""
    for name in sorted(mine.keys() | weights.keys()):
        if name not in weights or name not in mine:
            raise ValueError(f"the weight {name} is {'missing' if name not in weights else 'unknown to this model'}")
        if weights[name].shape != mine[name].shape:
            raise ValueError(f"the weight {name} has shape {list(weights[name].shape)}, not {list(mine[name].shape)}")


# ---- starting from another model -----------------------------------------------------------------------------------------


def init_from(
    source: Model,
    method: str | Method,
    codec: Codec | None = None,
    length: int | None = None,
    *,
    seed: int = 0,
    labels: Sequence[str] = (),
    whole_texts: bool = False,
    network_fields: str = "",
) -> Model:
    """Return a model of a method with the network of `source` and its weights, as far as they fit; the others are random.

    codec: codec of the new model, which must have the tokens of the source's codec.
    length: maximum number of tokens in a sequence, by default the source's.
    network_fields: parts to add to the network, such as "transformer:pointer=true"; their weights are random.
    """
    entry = method_named(method) if isinstance(method, str) else method
    codec = codec or source.codec
    if codec.identity() != source.codec.identity():
        raise ValueError("a model that starts from another one's weights must have its codec: leave --codec out")
    length = length or source.length
    name, before = network_name(source.network), config_of_network(source.network)
    kind, added = named_fields(network_fields or name)
    if kind != name:
        raise ValueError(f"a model that starts from the weights of a {name} cannot have a {kind}")
    data = {"labels": len(labels), "grid": codec.grid, "channels": codec.channels}
    fields = {"causal": False, "gaps": False} | entry.network_fields(codec.vocab, length, **data)
    accepted = accepted_arguments(type(source.network))
    fitting = {field: value for field, value in fields.items() if accepted is None or field in accepted}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = rebuild_network(kind, before | added | fitting)
    if added:
        with torch.device("meta"):
            _check_only_adds(network, rebuild_network(kind, before | fitting), network_fields)
    model = Model(entry, codec, network, length, labels=labels, whole_texts=whole_texts)
    old, new = source.weights(), model.weights()
    with torch.no_grad():
        for name, weight in new.items():
            value = old.get(name)
            if value is not None and isinstance(network, Gpt2) and name.endswith("positions.weight"):
                value = value[: len(weight)]  # the source is longer
            if value is None or value.shape != weight.shape:
                continue
            if isinstance(network, Transformer) and name.endswith(".conv.weight"):
                value = shift_taps(value, bool(before.get("causal")), network.shape.causal)
            weight.copy_(value)
    return model


def _check_only_adds(network: nn.Module, plain: nn.Module, fields: str) -> None:
    """Raise ValueError unless a network has all weights of the plain one and more."""
    shapes, kept = ({name: weight.shape for name, weight in one.named_parameters()} for one in (network, plain))
    if not kept.items() < shapes.items():
        raise ValueError(f"a run that starts from a model's weights can only add to its network, and {fields} does not")

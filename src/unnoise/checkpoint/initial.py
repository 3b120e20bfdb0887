"""Weights to begin with: what another model has learned, whatever its method and wherever it was trained."""

from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from unnoise.checkpoint.ours import CONFIG, WEIGHTS, digest, folder_of, read_config, read_weights
from unnoise.checkpoint.published.formats import published_model
from unnoise.data import Codec, codec_from

NETWORK = "network."  # with which the network's weights begin in a saved model


class InitialWeights(NamedTuple):
    """A trained network: its registered name, the configuration that builds it, its codec, and its weights by name."""

    network_name: str
    network_config: dict[str, Any]
    codec: Codec
    weights: dict[str, Tensor]


def initial_weights(path: str | Path) -> InitialWeights:
    """The network of a saved model of ours, of a bundled one, or of one from elsewhere (see docs/other_models.md).

    The configuration is that of the network as it was trained: a causal one says so, and a new model may differ. Token K, the
    mask, is a row of the embedding that a model from elsewhere lacks: there it begins as the mean of the others. In a saved
    autoregressive model it is the start symbol's, and stays so.
    """
    folder = folder_of(path)
    found = published_model(path if folder == Path(path) else folder)
    if found is not None:
        return InitialWeights("llama", found.config, found.codec, found.with_row(found.mean_row))
    config = read_config(folder)
    try:
        codec, network = codec_from(config["codec"], folder), config["network"]
        weights = read_weights(folder / WEIGHTS, digest(config, codec.identity()))
        ours = {name.removeprefix(NETWORK): tensor for name, tensor in weights.items() if name.startswith(NETWORK)}
        return InitialWeights(network["name"], dict(network["config"]), codec, ours)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{folder / CONFIG} does not describe a model ({error})") from error
    except ValueError as error:
        raise ValueError(f"{folder} holds no weights to begin with: {error}") from error

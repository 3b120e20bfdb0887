"""Checkpoints of Lightning: the weights, their average (EMA), and the training configuration that says what they are.

Evaluated are the averaged weights, as the papers' own code does. The average is a list in the order of `parameters()`, without
names and without buffers (MDLM, Duo, BD3-LM, UDLM), or a dict by name (Flex-MDM).
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from unnoise.checkpoint.published import flexmdm, sedd
from unnoise.checkpoint.published.ddit import BUFFERS, Layout, bare_names, hydra_sizes, read_ddit, section
from unnoise.checkpoint.published.fields import flag, whole
from unnoise.checkpoint.published.pickled import plain, read_pickle
from unnoise.checkpoint.published.reader import Choices, Published, Reader
from unnoise.checkpoint.published.tensor_files import state_dict

SUFFIX = ".ckpt"
BLOCKS = ("bd3lm",)
UNIFORM = ("duo", "duo_base", "distillation", "udlm")  # names of algorithms in Duo's code


def checkpoint_file(path: Path) -> Path | None:
    """The checkpoint that a path means: itself, or the only one of a folder (of several, last.ckpt)."""
    if path.is_file():
        return path if path.suffix == SUFFIX else None
    found = sorted(path.glob(f"*{SUFFIX}"))
    last = path / f"last{SUFFIX}"
    return last if last in found else found[0] if len(found) == 1 else None


def read_checkpoint(path: Path, described: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Tensor], str]:
    """The configuration (that of the file, or else `described`), the weights, and which these are: "ema" or "trained"."""
    checkpoint = read_pickle(path)
    if not isinstance(checkpoint, Mapping) or "state_dict" not in checkpoint:
        raise ValueError(f"{path.name} has no state_dict: it is no checkpoint of Lightning")
    trained = bare_names(state_dict(checkpoint["state_dict"], "its state_dict"))
    hyper = plain(checkpoint.get("hyper_parameters"))
    inside = hyper.get("config", hyper) if isinstance(hyper, dict) else None
    config = next(
        (one for one in (inside, plain(checkpoint.get("config")), described) if isinstance(one, Mapping) and one), None
    )
    if config is None:
        raise ValueError(f"{path.name} holds no configuration, and there is no config.json beside it")
    averaged = _averaged(checkpoint, trained)
    return config, averaged or trained, "ema" if averaged else "trained"


def _averaged(checkpoint: Mapping[str, Any], trained: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The averaged weights by name, None where there are none, or ValueError where they do not fit."""
    named = [name for name in trained if name not in BUFFERS]
    if checkpoint.get("ema_params") is not None:
        found = bare_names(state_dict(checkpoint["ema_params"], "its ema_params"))
    elif checkpoint.get("ema") is not None:
        ema = checkpoint["ema"]
        shadow = ema.get("shadow_params") if isinstance(ema, Mapping) else None
        if not isinstance(shadow, list) or len(shadow) != len(named):
            count = len(shadow) if isinstance(shadow, list) else "no"
            raise ValueError(f"its ema has {count} shadow_params for {len(named)} weights")
        found = state_dict(dict(zip(named, shadow, strict=True)), "its ema")
    else:
        return None
    for name in named:
        if name not in found:
            raise ValueError(f"its ema has no {name}")
        if found[name].shape != trained[name].shape:
            raise ValueError(f"its ema has {name} of shape {list(found[name].shape)}, not {list(trained[name].shape)}")
    return found


def lightning_layout(config: Mapping[str, Any]) -> Layout:
    """What a training configuration says, or ValueError: of MDLM's code, Duo's, BD3-LM's, UDLM's or Flex-MDM's."""
    if flexmdm.recognised(config):
        return flexmdm.layout(config)
    model = section(config, "model")
    length, heads, sizes = whole(model, "length"), whole(model, "n_heads"), hydra_sizes(model)
    if "vocab_size" in config:  # which it has not, but may have been told
        sizes["vocab"] = whole(config, "vocab_size")
    algorithm = config["algo"] if isinstance(config.get("algo"), Mapping) else config
    name, parameterization = algorithm.get("name"), algorithm.get("parameterization")
    if algorithm.get("backbone") != "dit":
        raise ValueError(f"its backbone is {algorithm.get('backbone')!r}; dit is read")
    if algorithm.get("causal_attention"):
        raise ValueError("it is autoregressive (causal_attention), which this layout is not read as")
    time = flag(algorithm, "time_conditioning", False)
    if name in UNIFORM or (name is None and config.get("diffusion") == "uniform"):
        options = "" if name in UNIFORM else ":eps=0.0"
        return Layout("duo" if name in UNIFORM else "udlm", f"udlm{options}", length, heads, sizes)
    if name in BLOCKS and parameterization == "subs" and not time:
        block = whole(config if "block_size" in config else algorithm, "block_size")
        return Layout("bd3lm", f"bd3lm:block={block}", length, heads, sizes, special=1, own_mask=True)
    if name in (None, "mdlm") and parameterization == "subs":
        reads = sedd.noise_options(section(config, "noise"))[1] if time else {}
        named = "mdlm:time=true" if time else "mdlm"
        return Layout("mdlm", named, length, heads, sizes, special=1, reads=reads, own_mask=True)
    if name in (None, "sedd") and parameterization == "sedd" and time:
        _, reads = sedd.noise_options(section(config, "noise"))
        return Layout("sedd", "sedd-absorb", length, heads, sizes, special=1, reads=reads)
    raise ValueError(
        f"its configuration has the algorithm {name!r} with the parameterization {parameterization!r}, which is not read here"
    )


def recognises(path: Path, described: Mapping[str, Any]) -> bool:
    """Whether there is a checkpoint of Lightning, and no model of 🤗 beside it."""
    return "model_type" not in described and checkpoint_file(path) is not None


def read_lightning(path: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """The model in a file or folder, or ValueError."""
    file = checkpoint_file(path)
    assert file is not None
    config, tensors, which = read_checkpoint(file, described)
    layout = lightning_layout(config)
    return read_ddit(replace(layout, notes={**layout.notes, "weights": which}), tensors, file.parent, choices)


READER = Reader((), recognises, read_lightning)

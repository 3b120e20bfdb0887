"""Lightning checkpoints: weights, their exponential moving average (EMA), and the training configuration.

The averaged weights are used for evaluation, as in the papers' own code. The average is a list in the order of `parameters()`
without buffers (MDLM, Duo, BD3-LM, UDLM), or a dictionary by name (Flex-MDM).
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import Tensor

from unnoise.checkpoint.published.ddit_layouts import FLEXMDM_TRAINER, flexmdm_layout, hydra_sizes, noise_options, section
from unnoise.checkpoint.published.ddit_weights import BUFFERS, Layout, bare_names, read_ddit
from unnoise.checkpoint.published.reader import Choices, Published, Reader, read_bool, read_int
from unnoise.checkpoint.published.tensor_files import check_state_dict, plain, read_pickle

CKPT = ".ckpt"
# names of algorithms in the papers' code; None: an older configuration, which has no name
UNIFORM, BLOCKS, MASKED, SCORES = ("duo", "duo_base", "distillation", "udlm"), ("bd3lm",), (None, "mdlm"), (None, "sedd")


def checkpoint_file(path: Path) -> Path | None:
    """Return the checkpoint at a path: the file itself, or the only one in a folder (last.ckpt of several)."""
    if path.is_file():
        return path if path.suffix == CKPT else None
    found = sorted(path.glob(f"*{CKPT}"))
    last = path / f"last{CKPT}"
    return last if last in found else found[0] if len(found) == 1 else None


def read_checkpoint(path: Path, described: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Tensor], str]:
    """Return the configuration, the weights, and which weights these are: "ema" or "trained".

    described: the config.json next to the file, used if the file holds no configuration.
    """
    checkpoint = read_pickle(path)
    if not isinstance(checkpoint, Mapping) or "state_dict" not in checkpoint:
        raise ValueError(f"{path.name} has no state_dict: it is not a checkpoint of Lightning")
    trained = bare_names(check_state_dict(checkpoint["state_dict"], "its state_dict"))
    hyper = plain(checkpoint.get("hyper_parameters"))
    inside = hyper.get("config", hyper) if isinstance(hyper, dict) else None
    candidates = (inside, plain(checkpoint.get("config")), described)
    config = next((one for one in candidates if isinstance(one, Mapping) and one), None)
    if config is None:
        raise ValueError(f"{path.name} holds no configuration, and there is no config.json next to it")
    averaged = _averaged(checkpoint, trained)
    return config, averaged or trained, "ema" if averaged else "trained"


def _averaged(checkpoint: Mapping[str, Any], trained: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    named = [name for name in trained if name not in BUFFERS]
    if checkpoint.get("ema_params") is not None:
        found = bare_names(check_state_dict(checkpoint["ema_params"], "its ema_params"))
    elif checkpoint.get("ema") is not None:
        ema = checkpoint["ema"]
        shadow = ema.get("shadow_params") if isinstance(ema, Mapping) else None
        if not isinstance(shadow, list) or len(shadow) != len(named):
            count = len(shadow) if isinstance(shadow, list) else "no"
            raise ValueError(f"its ema has {count} shadow_params for {len(named)} weights")
        found = check_state_dict(dict(zip(named, shadow, strict=True)), "its ema")
    else:
        return None
    for name in named:
        if name not in found:
            raise ValueError(f"its ema has no {name}")
        if found[name].shape != trained[name].shape:
            raise ValueError(f"its ema has {name} of shape {list(found[name].shape)}, not {list(trained[name].shape)}")
    return found


def lightning_layout(config: Mapping[str, Any]) -> Layout:
    """Return the layout for a training configuration of MDLM, SEDD, Duo, BD3-LM, UDLM or Flex-MDM."""
    if config.get("trainer") == FLEXMDM_TRAINER or "interpolant" in config:
        return flexmdm_layout(config)
    model = section(config, "model")
    sizes = hydra_sizes(model)
    if "vocab_size" in config:  # optional
        sizes["vocab"] = read_int(config, "vocab_size")
    algorithm = config["algo"] if isinstance(config.get("algo"), Mapping) else config
    name, parameterization = algorithm.get("name"), algorithm.get("parameterization")
    if algorithm.get("backbone") != "dit":
        raise ValueError(f"its backbone is {algorithm.get('backbone')!r}, and only dit is supported")
    if algorithm.get("causal_attention"):
        raise ValueError("it is autoregressive (causal_attention), which is not supported in this layout")
    time = read_bool(algorithm, "time_conditioning")
    fields: dict[str, Any]
    if name in UNIFORM or (name is None and config.get("diffusion") == "uniform"):
        fields = {"layout": "duo", "method": "udlm"} if name in UNIFORM else {"layout": "udlm", "method": "udlm:eps=0.0"}
    elif name in BLOCKS and parameterization == "subs" and not time:
        block = read_int(config if "block_size" in config else algorithm, "block_size")
        fields = {"layout": "bd3lm", "method": f"bd3lm:block={block}", "special": 1, "own_mask": True}
    elif name in MASKED and parameterization == "subs":
        fields = {"layout": "mdlm", "method": "mdlm:time=true" if time else "mdlm", "special": 1, "own_mask": True}
        fields["time_fields"] = noise_options(section(config, "noise"))[1] if time else {}
    elif name in SCORES and parameterization == "sedd" and time:
        fields = {"layout": "sedd", "method": "sedd-absorb", "special": 1}
        fields["time_fields"] = noise_options(section(config, "noise"))[1]
    else:
        raise ValueError(
            f"its configuration has the algorithm {name!r} with the parameterization {parameterization!r}, "
            "which is not supported"
        )
    return Layout(length=read_int(model, "length"), heads=read_int(model, "n_heads"), sizes=sizes, **fields)


def read_lightning(path: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """Return the model in a checkpoint file, or in a folder with one."""
    file = checkpoint_file(path)
    assert file is not None
    config, tensors, which = read_checkpoint(file, described)
    layout = lightning_layout(config)
    return read_ddit(replace(layout, notes={**layout.notes, "weights": which}), tensors, file.parent, choices)


LIGHTNING_READER = Reader(
    types=(),
    recognizes=lambda path, described: "model_type" not in described and checkpoint_file(path) is not None,
    read=read_lightning,
)

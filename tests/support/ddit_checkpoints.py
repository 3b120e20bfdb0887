"""Tiny models of random weights with the network ddit, one for each layout that is written, and checkpoints of Lightning."""

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import unnoise
from unnoise.denoiser import predict
from unnoise.families.insertion import Insertion, predict_insertion
from unnoise.model.model import Model
from unnoise.process.process_base import Process

KINDS = {  # layout, method, network, labels
    "mdlm": ("mdlm", "mdlm", "ddit", 0),
    "mdlm with time": ("mdlm", "mdlm:time=true", "ddit", 0),
    "sedd": ("sedd", "sedd-absorb", "ddit", 0),
    "sedd uniform": ("sedd", "sedd-uniform:scaled=false,schedule=geometric", "ddit:time_input=geometric", 0),
    "bd3lm": ("bd3lm", "bd3lm:block=4", "ddit", 0),
    "udlm": ("udlm", "udlm:eps=0.0", "ddit", 0),
    "udlm with labels": ("udlm", "udlm:eps=0.0", "ddit", 3),
    "duo": ("duo", "udlm", "ddit", 0),
    "gidd": ("gidd", "gidd:p_uniform=0.1", "ddit:time_input=t", 0),
    "flexmdm": ("flexmdm", "flexmdm:layout=end", "ddit:time_input=1-t", 0),
}
LENGTH = 12


def built(method: str, network: str = "ddit", labels: int = 0, seed: int = 0) -> Model:
    """Return a tiny model with random, non-zero weights."""
    codec = unnoise.codec("text8")
    model = Model.build(method, codec, LENGTH, width=16, depth=2, heads=2, network=f"{network}", labels=labels, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
    model.network.eval()
    return model


def lightning(tensors: dict[str, Tensor], config: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"epoch": 0, "state_dict": OrderedDict(tensors), "hyper_parameters": {"config": config}, **more}


def hydra(described: dict[str, Any]) -> dict[str, Any]:
    """Return the training configuration of an mdlm with these sizes."""
    model = {"hidden_size": described["hidden_dim"], "cond_dim": described["cond_dim"], "length": described["model_length"]}
    model |= {"n_blocks": described["n_blocks"], "n_heads": described["n_heads"]}
    return {
        "backbone": "dit",
        "parameterization": "subs",
        "time_conditioning": False,
        "model": model,
        "noise": {"type": "loglinear"},
    }


def copied(source: Path, target: Path) -> Path:
    """Copy a folder without its tokenizer, which all folders share."""
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.name != "tokenizer.json":
            (target / path.name).write_bytes(path.read_bytes())
    return target


@torch.no_grad()
def outputs(model: Model) -> list[Tensor]:
    """Predict some noised texts."""
    x = torch.randint(27, (3, LENGTH), generator=torch.Generator().manual_seed(1))
    t = torch.tensor([0.2, 0.5, 0.9])
    process = model.process
    if isinstance(process, Insertion):
        found = predict_insertion(model.denoiser, process, process.corrupt(x, t, torch.Generator().manual_seed(2)).x, t)
        return [found.log_probs, found.gaps]
    assert isinstance(process, Process)
    x_t = process.corrupt(x, t, torch.Generator().manual_seed(2))
    denoisers = [model.denoiser.condition(label) for label in (None, 0, 2)] if model.labels else [model.denoiser]
    return [predict(denoiser, process, x_t, t, process.active(x_t)).values for denoiser in denoisers]


def same(found: list[Tensor], expected: list[Tensor]) -> bool:
    """To the last digits, which depend on where in memory a matrix begins."""
    return all(torch.allclose(a, b, atol=1e-5) for a, b in zip(found, expected, strict=True))


def refused(folder: Path) -> str:
    """Return the one-sentence error of loading a folder."""
    with pytest.raises(ValueError) as error:
        unnoise.load(folder)
    words = str(error.value)
    assert "\n" not in words and len(words) < 600
    return words

"""SEDD (arXiv:2310.16834), as louaaron/sedd-small has it: a log score; config.json is the whole training configuration.

With scale_by_sigma the output is log s + log(e^σ − 1) + log K, as `Masked.scaled_score` reads it; without, it is log s.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.ddit import Layout, hydra_sizes, read_ddit, section
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.fields import flag, number, whole
from unnoise.checkpoint.published.reader import Choices, Published, Reader
from unnoise.checkpoint.published.tensor_files import folder_tensors

NAME = "sedd"


def recognises(folder: Path, described: Mapping[str, Any]) -> bool:
    """Whether a configuration is one of SEDD."""
    return folder.is_dir() and {"tokens", "graph", "noise", "model"} <= described.keys()


def read_sedd(folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """The model in a folder, or ValueError."""
    return read_ddit(layout(described), folder_tensors(folder), folder, choices)


def layout(described: Mapping[str, Any]) -> Layout:
    """What config.json says, or ValueError."""
    kind, noise, model = section(described, "graph").get("type"), section(described, "noise"), section(described, "model")
    if kind not in ("absorb", "uniform"):
        raise ValueError(f"its graph is {kind!r}; absorb and uniform are read")
    scaled = flag(model, "scale_by_sigma", default=True)
    if scaled and kind == "uniform":
        raise ValueError("its scale_by_sigma is true, which is for the graph absorb alone")
    options, reads = noise_options(noise)
    if not scaled:
        options["scaled"] = "false"
    settings = ",".join(f"{name}={value}" for name, value in options.items())
    special = int(kind == "absorb")
    return Layout(
        NAME,
        f"sedd-{kind}" + (f":{settings}" if settings else ""),
        whole(model, "length"),
        whole(model, "n_heads"),
        hydra_sizes(model) | {"vocab": whole(described, "tokens") + special},
        special=special,
        reads=reads,
    )


def noise_options(noise: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of our method, and the fields of the network, for a section `noise`; ValueError for another noise."""
    kind = noise.get("type")
    if kind == "loglinear":
        return {}, {}
    if kind != "geometric":
        raise ValueError(f"its noise is {kind!r}; loglinear and geometric are read")
    least, most = number(noise, "sigma_min", 1e-4), number(noise, "sigma_max", 20.0)
    if not 0 < least < most:
        raise ValueError(f"its noise goes from sigma_min {least} to sigma_max {most}, which must be 0 < sigma_min < sigma_max")
    bounds = {"sigma_min": least, "sigma_max": most}
    return {"schedule": "geometric", **bounds}, {"time_input": "geometric", **bounds}


def described(model: Exported) -> dict[str, Any]:
    """What config.json must say of a model of ours, or ValueError."""
    kind = model.method.removeprefix("sedd-")
    scaled, schedule = model.options.get("scaled"), model.options.get("schedule")
    model.check(NAME, model.method if kind in ("absorb", "uniform") else "sedd-absorb", schedule)
    if scaled and kind == "uniform":
        raise ValueError("the layout sedd has no scaled output for uniform noise: train sedd-uniform:scaled=false")
    bounds = {name: model.options[name] for name in ("sigma_min", "sigma_max")}
    if schedule == "geometric" and any(model.network[name] != value for name, value in bounds.items()):
        raise ValueError(f"the layout sedd has a network that reads the σ of its noise: --network ddit with {bounds}")
    return {
        **{"ngpus": 1, "tokens": model.rows - (kind == "absorb"), "graph": {"type": kind, "file": "data", "report_all": False}},
        **{"noise": {"type": schedule, **bounds}, "training": {"weight": "standard"}},
        **{"sampling": {"predictor": "euler", "steps": 128, "noise_removal": True}},
        "model": model.hydra_model() | {"scale_by_sigma": bool(scaled)},
    }


READER = Reader((), recognises, read_sedd)

"""SEDD (arXiv:2310.16834) in the layout of louaaron/sedd-small: a log score, and the training configuration as config.json.

With scale_by_sigma the output is log s + log(e^σ − 1) + log K, as in `Masked.scaled_score`; without it, the output is log s.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.ddit_weights import Layout, hydra_sizes, read_ddit, section
from unnoise.checkpoint.published.exported import Exported
from unnoise.checkpoint.published.reader import Choices, Published, Reader, read_bool, read_int, read_number
from unnoise.checkpoint.published.tensor_files import folder_tensors


def read_sedd(folder: Path, described: Mapping[str, Any], choices: Choices) -> Published:
    """Return the model in a folder."""
    return read_ddit(sedd_layout(described), folder_tensors(folder), folder, choices)


def sedd_layout(described: Mapping[str, Any]) -> Layout:
    """Return the layout that a training configuration describes."""
    kind, model = section(described, "graph").get("type"), section(described, "model")
    if kind not in ("absorb", "uniform"):
        raise ValueError(f"its graph must be absorb or uniform, found {kind!r}")
    scaled = read_bool(model, "scale_by_sigma", default=True)
    if scaled and kind == "uniform":
        raise ValueError("its scale_by_sigma is true, which is supported for the graph absorb only")
    options, time_fields = noise_options(section(described, "noise"))
    if not scaled:
        options["scaled"] = "false"
    settings = ",".join(f"{name}={value}" for name, value in options.items())
    special = int(kind == "absorb")
    return Layout(
        layout="sedd",
        method=f"sedd-{kind}" + (f":{settings}" if settings else ""),
        length=read_int(model, "length"),
        heads=read_int(model, "n_heads"),
        sizes=hydra_sizes(model) | {"vocab": read_int(described, "tokens") + special},
        special=special,
        time_fields=time_fields,
    )


def noise_options(noise: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of our method and the time fields of our network for a section `noise`."""
    kind = noise.get("type")
    if kind == "loglinear":
        return {}, {}
    if kind != "geometric":
        raise ValueError(f"its noise must be loglinear or geometric, found {kind!r}")
    least, most = read_number(noise, "sigma_min", 1e-4), read_number(noise, "sigma_max", 20.0)
    if not 0 < least < most:
        raise ValueError(f"its noise must have 0 < sigma_min < sigma_max, found {least} and {most}")
    bounds = {"sigma_min": least, "sigma_max": most}
    return {"schedule": "geometric", **bounds}, {"time_input": "geometric", **bounds}


def sedd_config(model: Exported) -> dict[str, Any]:
    """Return the configuration of a model of ours; raise ValueError if it does not fit the layout."""
    kind = model.method.removeprefix("sedd-")
    scaled, schedule = model.options.get("scaled"), model.options.get("schedule")
    model.check("sedd", model.method if kind in ("absorb", "uniform") else "sedd-absorb", schedule)
    if scaled and kind == "uniform":
        raise ValueError("the layout sedd has no scaled output for uniform noise: train sedd-uniform:scaled=false")
    bounds = {name: model.options[name] for name in ("sigma_min", "sigma_max")}
    if schedule == "geometric" and any(model.network[name] != value for name, value in bounds.items()):
        raise ValueError(f"the layout sedd needs a network with the σ of its noise as input: --network ddit with {bounds}")
    return {
        **{"ngpus": 1, "tokens": model.rows - (kind == "absorb"), "graph": {"type": kind, "file": "data", "report_all": False}},
        **{"noise": {"type": schedule, **bounds}, "training": {"weight": "standard"}},
        **{"sampling": {"predictor": "euler", "steps": 128, "noise_removal": True}},
        "model": model.hydra_model() | {"scale_by_sigma": bool(scaled)},
    }


SEDD_READER = Reader(
    types=(),
    recognises=lambda folder, described: folder.is_dir() and {"tokens", "graph", "noise", "model"} <= described.keys(),
    read=read_sedd,
)

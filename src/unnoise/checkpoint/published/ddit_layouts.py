"""Published layouts of the network ddit: their configurations, read to load a model and written to export one.

| layout | paper | noise | network input | special rows of the embedding |
|---|---|---|---|---|
| sedd (louaaron/sedd-small) | arXiv:2310.16834 | absorb or uniform | σ | mask |
| mdlm (kuleshov-group/mdlm-owt) | arXiv:2406.07524 | masked | σ = 0, or σ | mask |
| bd3lm (kuleshov-group/bd3lm-owt-block_size4) | arXiv:2503.09573 | masked, in blocks | σ = 0 | mask |
| udlm (kuleshov-group/udlm-lm1b) | arXiv:2412.10193 | uniform over all rows | σ = −log(1 − (1 − 10⁻³)t) | none |
| duo (s-sahoo/duo) | arXiv:2506.10892 | uniform over all rows | as udlm | none |
| gidd (dvruette/gidd-base-p_unif-0.1) | arXiv:2503.04482 | masked and uniform | t | mask, and unused rows after it |
| flexmdm | arXiv:2509.01025 | insertion | 1 − t | padding and mask |

SEDD and Flex-MDM store the configuration of their training run. SEDD's network returns a log score: with scale_by_sigma, its
output is log s + log(e^σ − 1) + log K, as in `Masked.scaled_score`, and log s without. MDLM's output has a row for the mask, to
which SUBS assigns no probability; our network does not compute it. UDLM's loss has α = 1 − t, and its last label means "no
label". Duo differs from UDLM only in its training, with α = 1 − (1 − 10⁻³)t, and becomes a model of the method `udlm`. GIDD's
mask is the token [MASK] of the tokenizer, or, without one, the last of vocab_size.

Each layout has a function that reads its configuration and one that writes it. Both raise ValueError for an unsupported value.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from unnoise.checkpoint.published.ddit_weights import Layout, read_ddit
from unnoise.checkpoint.published.reader import Choices, Published, Reader, read_bool, read_int, read_number, type_reader
from unnoise.checkpoint.published.tensor_files import folder_tensors
from unnoise.checkpoint.published.tokenizer_files import MASK, find_tokenizer

SIGMA_EPS = 1e-3  # ε of the log-linear schedule whose σ is the network's input
HF_SIZES = {"vocab": "vocab_size", "width": "hidden_dim", "depth": "n_blocks", "cond_width": "cond_dim"}
GIDD_SIZES = {
    **{"vocab": "vocab_size", "width": "hidden_size"},
    **{"depth": "num_hidden_layers", "cond_width": "timestep_cond_dim"},
}
BD3LM_SAMPLING = {"sampling_eps_min": 1e-3, "sampling_eps_max": 0.999}  # bounds of t in training
BD3LM_FIELDS = {"causal": False, "cross_attn": True, "adaln": True, "time_conditioning": False}
FLEXMDM_TRAINER = "any-order-flow"


@dataclass(frozen=True)
class Exported:
    """A model of ours to export.

    method, options: name of the method without settings, and all of its settings.
    network: configuration of the network.
    length: maximum length of a sequence.
    labels: number of classes.
    """

    method: str
    options: Mapping[str, Any]
    network: Mapping[str, Any]
    length: int
    labels: int

    @property
    def rows(self) -> int:
        """Number of embedding rows, for tokens and special symbols."""
        return self.network["inputs"]

    def check(self, layout: str, method: str, time_input: str | None = "loglinear", labels: bool = False) -> None:
        """Raise ValueError unless the model fits a layout.

        method: method that the layout is for.
        time_input: the network's time input in the layout; None means no time.
        labels: whether the layout has labels.
        """
        if self.method != method:
            raise ValueError(f"the layout {layout} is for the method {method}, but this is a model of {self.method}")
        if self.labels and not labels:
            raise ValueError(f"the layout {layout} has no labels, but this model has {self.labels}")
        found = self.network["time_input"] if self.network["time"] else None
        if found != time_input or (found == "loglinear" and self.network["sigma_eps"] != SIGMA_EPS):
            needed = "without time" if time_input is None else f"with --network ddit:time_input={time_input}"
            raise ValueError(f"the layout {layout} needs a network {needed}, but this one has time_input={found}")
        if self.network["causal"] or self.network["hidden"] != 4 * self.network["width"]:
            raise ValueError(f"the layout {layout} needs a bidirectional network with a perceptron of four times its width")

    def hf_config(self, kind: str, name: str, code: str) -> dict[str, Any]:
        """Return the part of config.json that MDLM, BD3-LM, Duo and UDLM share.

        kind: the `model_type`.
        name: prefix of the layout's class names.
        code: repository and file of these classes, as repository--file.
        """
        settings = code.replace("--modeling", "--configuration")
        return {
            "architectures": [name],
            "auto_map": {"AutoConfig": f"{settings}.{name}Config", "AutoModelForMaskedLM": f"{code}.{name}"},
            **{theirs: self.network[ours] for ours, theirs in HF_SIZES.items() if ours != "vocab"},
            **{"vocab_size": self.rows, "model_length": self.length, "n_heads": self.network["heads"]},
            **{"dropout": 0.1, "model_type": kind, "return_dict": False, "torch_dtype": "float32"},
        }

    def hydra_model(self) -> dict[str, Any]:
        """Return the section `model` of a training configuration."""
        return {
            **{"name": "small", "type": "ddit", "hidden_size": self.network["width"]},
            **{"cond_dim": self.network["cond_width"], "length": self.length, "n_blocks": self.network["depth"]},
            **{"n_heads": self.network["heads"], "dropout": 0.1},
        }


def section(described: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a section of a training configuration; raise ValueError if it is missing."""
    value = described.get(name)
    if not isinstance(value, Mapping):
        raise ValueError(f"its configuration has no {name}")
    return value


def hydra_sizes(model: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes in the section `model` of a training configuration."""
    named = {"width": "hidden_size", "depth": "n_blocks", "cond_width": "cond_dim"}
    return {ours: read_int(model, theirs) for ours, theirs in named.items()}


def hf_layout(described: Mapping[str, Any], layout: str, method: str, **fields: Any) -> Layout:
    """Return the layout for a config.json of MDLM, BD3-LM, Duo or UDLM, which name their sizes alike."""
    sizes = {ours: read_int(described, theirs) for ours, theirs in HF_SIZES.items()}
    length, heads = read_int(described, "model_length"), read_int(described, "n_heads")
    return Layout(layout, method, length=length, heads=heads, sizes=sizes, **fields)


def _mdlm_layout(described: Mapping[str, Any], folder: Path) -> Layout:
    method = "mdlm:time=true" if read_bool(described, "time_conditioning") else "mdlm"
    return hf_layout(described, "mdlm", method, special=1, own_mask=True)


def _mdlm_config(model: Exported) -> dict[str, Any]:
    model.check("mdlm", "mdlm", "loglinear" if model.network["time"] else None)
    config = model.hf_config("mdlm", "MDLM", "kuleshov-group/mdlm-owt--modeling_mdlm")
    return config | {"time_conditioning": model.network["time"]}


def _bd3lm_layout(described: Mapping[str, Any], folder: Path) -> Layout:
    for name, value in BD3LM_FIELDS.items():
        if read_bool(described, name, value) is not value:
            raise ValueError(f"its {name} is {str(not value).lower()}: only BD3-LMs with {str(value).lower()} are supported")
    block = read_int(described, "block_size")
    layout = hf_layout(described, "bd3lm", f"bd3lm:block={block}", special=1, own_mask=True)
    if block > layout.length:
        raise ValueError(f"its block_size {block} is larger than its model_length {layout.length}")
    return layout


def _bd3lm_config(model: Exported) -> dict[str, Any]:
    model.check("bd3lm", "bd3lm", None)
    config = model.hf_config("bd3lm", "BD3LM", "kuleshov-group/bd3lm-owt-block_size4--modeling_bd3lm")
    fields = {"attn_backend": "sdpa", "var_min": True, "block_size": model.options["block"]}
    return config | BD3LM_FIELDS | BD3LM_SAMPLING | fields


def _duo_layout(described: Mapping[str, Any], folder: Path) -> Layout:
    if read_bool(described, "causal"):
        raise ValueError("it is causal, but the network of Duo is bidirectional")
    return hf_layout(described, "duo", "udlm")


def _duo_config(model: Exported) -> dict[str, Any]:
    model.check("duo", "udlm")
    return model.hf_config("DUO", "DUO", "s-sahoo/duo--model") | {"causal": False, "var_min": True}


def _udlm_layout(described: Mapping[str, Any], folder: Path) -> Layout:
    if not read_bool(described, "time_conditioning", True):
        raise ValueError("its time_conditioning is false: models with uniform noise must be conditioned on time")
    labels = read_int(described, "cfg_num_classes") if read_bool(described, "cfg") else 0
    return hf_layout(described, "udlm", "udlm:eps=0.0", labels=labels)


def _udlm_config(model: Exported) -> dict[str, Any]:
    model.check("udlm", "udlm", labels=True)
    config = model.hf_config("udlm", "UDLM", "kuleshov-group/udlm-lm1b--modeling_udlm")
    return config | {"time_conditioning": True, "cfg": bool(model.labels), "cfg_num_classes": model.labels or -1}


def _gidd_layout(described: Mapping[str, Any], folder: Path) -> Layout:
    share = read_number(described, "p_uniform") if described.get("p_uniform") not in (0, None) else 0.0
    if share >= 1:
        raise ValueError(f"its p_uniform must be below 1, found {share}")
    sizes = {ours: read_int(described, theirs) for ours, theirs in GIDD_SIZES.items()}
    tokenizer = find_tokenizer(folder)
    mask = tokenizer.token_to_id(MASK) if tokenizer is not None else None
    return Layout(
        layout="gidd",
        method=f"gidd:p_uniform={share!r}",
        length=read_int(described, "max_seq_len"),
        heads=read_int(described, "num_attention_heads"),
        sizes=sizes,
        special=1,
        tokens=sizes["vocab"] - 1 if mask is None else mask,
        rounded=128,
        time_fields={"time_input": "t"},
    )


def _gidd_config(model: Exported) -> dict[str, Any]:
    model.check("gidd", "gidd", "t")
    code = "dvruette/gidd-small-p_unif-0.0--"
    return {
        "architectures": ["DIT"],
        "auto_map": {"AutoConfig": f"{code}configuration_dit.DITConfig", "AutoModelForMaskedLM": f"{code}modeling_dit.DIT"},
        **{theirs: model.network[ours] for ours, theirs in GIDD_SIZES.items() if ours != "vocab"},
        **{"vocab_size": model.rows, "max_seq_len": model.length, "num_attention_heads": model.network["heads"]},
        **{"attention_dropout": 0.0, "model_type": "dit", "p_uniform": model.options["p_uniform"], "t_eps": 1e-4},
        "torch_dtype": "float32",
    }


def _sedd_layout(described: Mapping[str, Any], folder: Path) -> Layout:
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


def _sedd_config(model: Exported) -> dict[str, Any]:
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


def flexmdm_layout(described: Mapping[str, Any]) -> Layout:
    """Return the layout that a training configuration of Flex-MDM describes."""
    model, noise = section(described, "model"), section(described, "interpolant")
    if noise.get("type") != "any-order":
        raise ValueError(f"its interpolant must be any-order, found {noise.get('type')!r}")
    for name in ("insert_schedule", "unmask_schedule"):
        kind = section(noise, name).get("type")
        if kind != "linear":
            raise ValueError(f"its {name} must be linear, found {kind!r}")
    rows, padding, mask = (read_int(noise, name) for name in ("tokens", "pad_token", "mask_token"))
    if {padding, mask} != {rows - 2, rows - 1}:
        raise ValueError(f"its padding and mask are tokens {padding} and {mask}, not the last two of {rows}")
    return Layout(
        layout="flexmdm",
        method="flexmdm:layout=end",
        length=read_int(noise, "max_length"),
        heads=read_int(model, "n_heads"),
        sizes=hydra_sizes(model) | {"vocab": rows},
        special=2,
        time_fields={"time_input": "1-t"},
        gaps=True,
        swapped=padding > mask,
    )


def _flexmdm_config(model: Exported) -> dict[str, Any]:
    if model.options.get("layout", "end") != "end":
        raise ValueError("the layout flexmdm is for models of flexmdm:layout=end: train with that method")
    model.check("flexmdm", "flexmdm", "1-t")
    rows = model.rows
    return {
        **{"trainer": FLEXMDM_TRAINER, "dataset": "openwebtext", "model": model.hydra_model()},
        "interpolant": {
            **{"type": "any-order", "tokens": rows, "pad_token": rows - 2, "mask_token": rows - 1},
            **{"max_length": model.length, "insert_schedule": {"type": "linear"}, "unmask_schedule": {"type": "linear"}},
        },
        "training": {"only_embed_insert": True, "loss_fn": {"unmask": "elbo", "insert": "expectation"}, "ema_decay": 0.9999},
    }


def read_layout(
    layout: Callable[[Mapping[str, Any], Path], Layout], folder: Path, described: Mapping[str, Any], choices: Choices
) -> Published:
    """Return the model in a folder. layout: function from its configuration and the folder to its layout."""
    return read_ddit(layout(described, folder), folder_tensors(folder), folder, choices)


HF_LAYOUTS = {"mdlm": _mdlm_layout, "bd3lm": _bd3lm_layout, "DUO": _duo_layout, "udlm": _udlm_layout, "dit": _gidd_layout}
DDIT_READERS = (
    *(type_reader(kind, read=partial(read_layout, layout)) for kind, layout in HF_LAYOUTS.items()),
    Reader(
        types=(),
        recognizes=lambda folder, described: folder.is_dir() and {"tokens", "graph", "noise", "model"} <= described.keys(),
        read=partial(read_layout, _sedd_layout),
    ),
)
DDIT_CONFIGS: dict[str, Callable[[Exported], dict[str, Any]]] = {
    "mdlm": _mdlm_config,
    "sedd": _sedd_config,
    "bd3lm": _bd3lm_config,
    "udlm": _udlm_config,
    "duo": _duo_config,
    "gidd": _gidd_config,
    "flexmdm": _flexmdm_config,
}

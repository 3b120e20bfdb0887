"""The commands `unnoise info` and `unnoise ls`."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from unnoise.cli.command_base import (
    Json,
    ModelName,
    bundled,
    find_folder,
    model_folders,
    open_model,
    printable,
    show_result,
    visible,
)

if TYPE_CHECKING:
    from unnoise.data import Codec
    from unnoise.model.model import Model
    from unnoise.sampler import Sampler

CARD_LINES = 8  # lines of a model card that are shown


@dataclass
class InfoCommand:
    """Describe a model, or a folder of prepared data.

    Example: unnoise info runs/first --schedule
    """

    folder: Annotated[
        Positional[str | None], arg(metavar="FOLDER", help="Model, as for --model, or output folder of `unnoise prepare`.")
    ] = None
    model: ModelName = None
    schedule: Annotated[bool, arg(help="Print the noise schedule, and its learned exponents if there are any.")] = False
    verify: Annotated[bool, arg(help="Check the hashes of all shards of prepared data.")] = False
    as_json: Json = False

    def run(self) -> int:
        from unnoise.data.shard_files import is_prepared

        if self.folder is not None and self.model is not None:
            raise ValueError("FOLDER and --model exclude each other: give one of them")
        if self.folder is not None and is_prepared(Path(self.folder)):
            return self._prepared(Path(self.folder))
        if self.verify:
            raise ValueError("--verify is for an output folder of `unnoise prepare`")
        if not self.needs_weights and (described := self._published()):
            return show_result(self.as_json, *described)
        model = open_model(self.folder or self.model, "cpu")
        self.draw(model)
        schedule = schedule_values(model) if self.schedule else {}
        found = model.config() | {"parameters": model.num_parameters, "card": model.card} | schedule
        return show_result(self.as_json, found, chain(self._lines(model), schedule_lines(schedule) if schedule else ()))

    @property
    def needs_weights(self) -> bool:
        """True if the weights of a model must be loaded. Applications extend this."""
        return self.schedule

    def draw(self, model: "Model") -> None:
        """Draw a picture of the model, if one was requested. Applications implement this."""

    def _lines(self, model: "Model") -> Iterator[str]:
        from unnoise.checkpoint.format import CARD, card_lines

        yield f"{model.method.name}: {model.method.title}\n{model.method.paper}"
        facts: dict[str, object] = {"labels": ", ".join(model.labels)} if model.labels else {}
        for name, value in model.notes.items():
            facts[name.replace("_", " ")] = f"{value:.4g}" if isinstance(value, float) else value
        if model.sampling:
            facts["recommends"] = ", ".join(f"{name} {value}" for name, value in model.sampling.items())
        yield from model_lines(model.config()["network"], model.num_parameters, model.codec, model.length, facts)
        if model.card:
            yield f"card       {find_folder(self.folder or self.model) / CARD}"
            yield from (f"           {printable(line)}" for line in card_lines(model.card)[:CARD_LINES])

    def _published(self) -> tuple[dict[str, Any], Iterator[str]] | None:
        """Return a description of a published model, without loading its weights, or None for another model."""
        from unnoise.checkpoint.published import published_model
        from unnoise.checkpoint.published.reader import Choices
        from unnoise.data import codec_kind
        from unnoise.method_table import method
        from unnoise.model.io import located, network_without_weights

        asked = find_folder(self.folder or self.model)
        found = published_model(located(asked), Choices(asked.name))
        if found is None:
            return None
        codec, entry = found.codec, method(found.method)
        parameters = sum(weight.numel() for weight in network_without_weights(found).state_dict().values())
        network = {"name": found.network, "config": found.config}
        described = {
            "family": found.family,
            "method": found.method,
            "length": found.length,
            "parameters": parameters,
            "network": network,
            "notes": dict(found.notes),
            "guess": found.guess,
            "codec": {"kind": codec_kind(codec), **codec.config()},
        }
        mask = found.config.get("mask_token")
        facts: dict[str, object] = {} if mask is None else {"mask": f"token {mask}{f' ({found.guess})' if found.guess else ''}"}
        title = f"{found.family}, read as {entry.name}: {entry.title}\n{entry.paper}"
        return described, chain([title], model_lines(network, parameters, codec, found.length, {**facts, **found.notes}))

    def _prepared(self, folder: Path) -> int:
        """Describe a folder of prepared data."""
        from unnoise.cli.prepare_command import summary, summary_lines
        from unnoise.data.shard_files import read_index, verify

        index = read_index(folder)
        verified = {"verified": verify(index, folder)} if self.verify else {}
        title = f"prepared data, {index.dtype} in memory-mapped shards"
        unchanged = [f"all {verified['verified']} files are unchanged"] if verified else []
        return show_result(self.as_json, summary(index) | verified, chain([title], summary_lines(index, folder), unchanged))


def model_lines(
    network: Mapping[str, Any], parameters: int, codec: "Codec", length: int, facts: Mapping[str, object]
) -> Iterator[str]:
    """Yield the summary of a model as lines of text."""
    from unnoise.data import codec_kind

    sizes = "".join(f", {name} {network['config'][name]}" for name in ("depth", "width", "heads") if name in network["config"])
    rows = {
        "network": f"{network['name']}{sizes}, {parameters:,} parameters",
        "codec": f"{codec_kind(codec)}, {codec.vocab} tokens{'' if codec.eos is None else ' with EOS'}",
        "length": f"{length} tokens",
        **facts,
    }
    for name, value in rows.items():
        yield f"{printable(name):10s} {printable(value)}"


def schedule_values(model: "Model") -> dict[str, Any]:
    """Return α(t) of each curve (the mean over tokens if they differ), and the learned exponents."""
    import torch

    t = torch.tensor([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99], dtype=torch.float64)
    with torch.no_grad():
        curves = {name: alpha(t).view(len(t), -1).mean(1).tolist() for name, alpha in model.process.curves().items()}
    return {"t": t.tolist(), "curves": curves, "exponents": learned_exponents(model)}


def schedule_lines(schedule: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that print a noise schedule and its learned exponents."""
    curves, exponents = schedule["curves"], schedule["exponents"]
    if not curves:
        yield "schedule   none: this method has no noise"
        return
    yield "schedule   t     " + " ".join(f"{t:5.2f}" for t in schedule["t"])
    for name, values in curves.items():
        yield f"           {name}{' (mean)' if exponents else ''}  " + " ".join(f"{value:5.3f}" for value in values)
    if exponents:
        yield f"exponents  α_i(t) = 1 − t^w_i, w from {exponents[-1][1]:.3f} to {exponents[0][1]:.3f}"
        for name, some in (("first", exponents[:5]), ("last", exponents[:-6:-1])):
            yield f"           revealed {name}: " + ", ".join(f"{token} {w:.3f}" for token, w in some)


def learned_exponents(model: "Model") -> list[tuple[str, float]]:
    """Return the learned exponents w_i with their tokens, from the first revealed (large) to the last, or an empty list."""
    from unnoise.schedule import PerToken

    learned = [module for module in model.process.modules() if isinstance(module, PerToken)]
    if not learned:
        return []
    values = learned[0].exponents().detach().tolist()
    return sorted(((visible(model.codec.show(i)), value) for i, value in enumerate(values)), key=lambda pair: -pair[1])


@dataclass
class LsCommand:
    """List methods, samplers, recipes and models.

    Example: unnoise ls
    """

    recipes: Annotated[bool, arg(help="List the recipes of published runs, for `unnoise train --recipe`.")] = False
    as_json: Json = False

    def run(self) -> int:
        if self.recipes:
            return self._recipes()
        from unnoise.data import codec_names
        from unnoise.method_table import methods
        from unnoise.recipes import recipes
        from unnoise.registry import registered
        from unnoise.sampler_table import named_sampler, sampler_names

        folders = {path.name if bundled(path) else str(path): path for path in model_folders()}
        descriptions = {name: _description_of(path) for name, path in folders.items()}
        found = {
            "methods": methods(),
            "samplers": {name: self._sampler(named_sampler(name)) for name in sampler_names()},
            "networks": list(registered("network")),
            "recipes": list(recipes()),
            "codecs": codec_names(),
            "models": {name: _method_of(path) for name, path in folders.items()},
            "descriptions": {name: described for name, described in descriptions.items() if described},
        }
        return show_result(self.as_json, found, self._lines(found))

    def _lines(self, found: Mapping[str, Any]) -> Iterator[str]:
        from unnoise.method_table import method, method_options

        yield "methods"
        for name in found["methods"]:
            options = ", ".join(f"{option}={default}" for option, default in method_options(name).items())
            yield f"  {name:20s} {method(name).title}{f' ({options})' if options else ''}"
        yield "samplers"
        for name, sampler in found["samplers"].items():
            yield f"  {name:20s} {sampler['distribution']}"
            for field in sampler["fields"]:
                choices = f" ({', '.join(field['choices'])})" if field["choices"] else ""
                yield f"  {'':20s}   {field['name']}={field['default']}{choices}: {field['help']}"
        yield "networks\n  " + ", ".join(found["networks"])
        yield "codecs\n  " + ", ".join(found["codecs"])
        yield "recipes (described by unnoise ls --recipes)\n  " + ", ".join(found["recipes"])
        yield "models"
        for name, method_name in found["models"].items():
            description = found["descriptions"].get(name, "")
            yield f"  {printable(name):20s} {method_name}{': ' if description else ''}{description}"

    def _recipes(self) -> int:
        from unnoise.recipes import recipes

        known = {name: asdict(recipe) for name, recipe in recipes().items()}
        for recipe in known.values():
            del recipe["options"]
        lines = (
            f"{name:20s} {printable(': '.join(filter(None, (recipe['title'], recipe['published']))))}"
            for name, recipe in known.items()
        )
        return show_result(self.as_json, {"recipes": known}, lines)

    def _sampler(self, sampler: "Sampler") -> dict[str, Any]:
        """Return the fields of a sampler, and its effect on the model's distribution."""
        from unnoise.sampler_table import sampler_fields

        fields = [
            {"name": field.name, "default": vars(sampler)[field.name], "choices": field.choices, "help": field.help}
            for field in sampler_fields(type(sampler))
            if field.kind != "sampler"
        ]
        return {"distribution": sampler.distribution, "keeps_distribution": sampler.keeps_distribution, "fields": fields}


def _method_of(folder: Path) -> str:
    """Return the method of the model in a folder, or a note that it is damaged."""
    from unnoise.checkpoint.format import read_config

    try:
        return printable(read_config(folder)["method"])
    except ValueError:
        return "? (damaged)"


def _description_of(folder: Path) -> str:
    """Return the description in a model card, or an empty string if there is no card."""
    from unnoise.checkpoint.format import card_description, read_card

    try:
        return printable(card_description(read_card(folder)))
    except ValueError:
        return ""

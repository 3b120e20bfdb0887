"""`unnoise info` and `unnoise ls`."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from unnoise.cli.command_base import Json, ModelName, bundled, find_folder, model_folders, open_model, printable, visible

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
        Positional[str | None], arg(metavar="FOLDER", help="A model, as for --model, or a folder of `unnoise prepare`.")
    ] = None
    model: ModelName = None
    schedule: Annotated[bool, arg(help="Print the noise schedule, and its learned exponents if there are any.")] = False
    verify: Annotated[bool, arg(help="Verify the hashes of all shards of prepared data.")] = False
    as_json: Json = False

    def run(self) -> int:
        from unnoise.data.shard_files import is_prepared

        if self.folder is not None and self.model is not None:
            raise ValueError("name one thing, as FOLDER or with --model")
        if self.folder is not None and is_prepared(Path(self.folder)):
            return self._prepared(Path(self.folder))
        if self.verify:
            raise ValueError("--verify is for a folder of `unnoise prepare`")
        if not self.needs_weights and self._published():
            return 0
        model = open_model(self.folder or self.model, "cpu")
        self.draw(model)
        if self.as_json:
            result = model.config() | {"parameters": model.num_parameters, "card": model.card}
            print(json.dumps(result | (self._schedule(model) if self.schedule else {}), ensure_ascii=False))
            return 0
        print(f"{model.method.name}: {model.method.title}\n{model.method.paper}")
        network = model.config()["network"]
        facts: dict[str, object] = {"labels": ", ".join(model.labels)} if model.labels else {}
        facts |= {
            name.replace("_", " "): f"{value:.4g}" if isinstance(value, float) else value for name, value in model.notes.items()
        }
        if model.sampling:
            facts["recommends"] = ", ".join(f"{name} {value}" for name, value in model.sampling.items())
        _print_model(network["name"], network["config"], model.num_parameters, model.codec, model.length, facts)
        self._show_card(model)
        if self.schedule:
            self._show(self._schedule(model))
        return 0

    @property
    def needs_weights(self) -> bool:
        """Whether the weights of a model must be loaded. Applications extend this."""
        return self.schedule

    def draw(self, model: "Model") -> None:
        """Draw a picture of the model, if one was asked for. Applications implement this."""

    def _published(self) -> bool:
        """Describe a published model without loading its weights, and return whether the model is a published one."""
        from unnoise.checkpoint.published import published_model
        from unnoise.checkpoint.published.reader import Choices
        from unnoise.data import codec_kind
        from unnoise.method_table import method
        from unnoise.model.io import located, network_without_weights

        asked = find_folder(self.folder or self.model)
        found = published_model(located(asked), Choices(asked.name))
        if found is None:
            return False
        network, codec, entry = network_without_weights(found), found.codec, method(found.method)
        parameters = sum(weight.numel() for weight in network.state_dict().values())
        if self.as_json:
            described = {
                "family": found.family,
                "method": found.method,
                "length": found.length,
                "parameters": parameters,
                "network": {"name": found.network, "config": found.config},
                "notes": dict(found.notes),
                "guess": found.guess,
                "codec": {"kind": codec_kind(codec), **codec.config()},
            }
            print(json.dumps(described, ensure_ascii=False))
            return True
        print(f"{found.family}, read as {entry.name}: {entry.title}\n{entry.paper}")
        mask = found.config.get("mask_token")
        facts: dict[str, object] = {} if mask is None else {"mask": f"token {mask}{f' ({found.guess})' if found.guess else ''}"}
        facts |= found.notes
        _print_model(found.network, found.config, parameters, codec, found.length, facts)
        return True

    def _show_card(self, model: "Model") -> None:
        """Print the path of the model card and its first lines."""
        from unnoise.checkpoint.format import CARD, card_lines

        if model.card:
            print(f"card       {find_folder(self.folder or self.model) / CARD}")
            for line in card_lines(model.card)[:CARD_LINES]:
                print(f"           {printable(line)}")

    def _prepared(self, folder: Path) -> int:
        """Describe a folder of prepared data."""
        from unnoise.cli.prepare_command import print_summary, summary
        from unnoise.data.shard_files import read_index, verify

        index = read_index(folder)
        verified = {"verified": verify(index, folder)} if self.verify else {}
        if self.as_json:
            print(json.dumps(summary(index) | verified))
            return 0
        print(f"prepared data, {index.dtype} in memory-mapped shards")
        print_summary(index, folder)
        if verified:
            print(f"all {verified['verified']} files are unchanged")
        return 0

    def _schedule(self, model: "Model") -> dict[str, Any]:
        """Return α(t) of each curve (the mean over tokens if they differ), and the learned exponents."""
        import torch

        t = torch.tensor([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99], dtype=torch.float64)
        with torch.no_grad():
            curves = {name: alpha(t).view(len(t), -1).mean(1).tolist() for name, alpha in model.process.curves().items()}
        return {"t": t.tolist(), "curves": curves, "exponents": learned_exponents(model)}

    def _show(self, schedule: dict[str, Any]) -> None:
        curves, exponents = schedule["curves"], schedule["exponents"]
        if not curves:
            print("schedule   none: this method has no noise")
            return
        print("schedule   t     " + " ".join(f"{t:5.2f}" for t in schedule["t"]))
        for name, values in curves.items():
            print(f"           {name}{' (mean)' if exponents else ''}  " + " ".join(f"{value:5.3f}" for value in values))
        if exponents:
            listed = exponents
            print(f"exponents  α_i(t) = 1 − t^w_i, w from {listed[-1][1]:.3f} to {listed[0][1]:.3f}")
            for words, some in (("first", listed[:5]), ("last", listed[:-6:-1])):
                print(f"           revealed {words}: " + ", ".join(f"{token} {w:.3f}" for token, w in some))


def _print_model(
    network: str, config: dict[str, Any], parameters: int, codec: "Codec", length: int, facts: dict[str, object]
) -> None:
    """Print a summary of a model."""
    from unnoise.data import codec_kind

    sizes = ", ".join(f"{name} {config[name]}" for name in ("depth", "width", "heads") if name in config)
    rows = {
        "network": f"{network}{f', {sizes}' if sizes else ''}, {parameters:,} parameters",
        "codec": f"{codec_kind(codec)}, {codec.vocab} tokens{'' if codec.eos is None else ' with EOS'}",
        "length": f"{length} tokens",
        **facts,
    }
    for name, value in rows.items():
        print(f"{printable(name):10s} {printable(value)}")


@dataclass
class LsCommand:
    """List methods, samplers, recipes and models.

    Example: unnoise ls
    """

    recipes: Annotated[bool, arg(help="List only the recipes of published runs, for `unnoise train --recipe`.")] = False
    as_json: Json = False

    def run(self) -> int:
        if self.recipes:
            return self._recipes()
        from unnoise.data import codec_names
        from unnoise.method_table import method, method_options, methods
        from unnoise.recipes import recipes
        from unnoise.registry import registered
        from unnoise.sampler_table import named_sampler, sampler_names

        networks = list(registered("network"))
        found_models = {path.name if bundled(path) else str(path): path for path in model_folders()}
        models = {name: _method_of(path) for name, path in found_models.items()}
        descriptions = {name: _description_of(path) for name, path in found_models.items()}
        samplers = {name: named_sampler(name) for name in sampler_names()}
        if self.as_json:
            found = {
                "methods": methods(),
                "samplers": {name: self._sampler(sampler) for name, sampler in samplers.items()},
                "networks": networks,
                "recipes": list(recipes()),
                "codecs": codec_names(),
                "models": models,
                "descriptions": {name: words for name, words in descriptions.items() if words},
            }
            print(json.dumps(found, ensure_ascii=False))
            return 0
        print("methods")
        for name in methods():
            options = ", ".join(f"{option}={default}" for option, default in method_options(name).items())
            print(f"  {name:20s} {method(name).title}{f' ({options})' if options else ''}")
        print("samplers")
        for name, sampler in samplers.items():
            described = self._sampler(sampler)
            print(f"  {name:20s} {described['distribution']}")
            for field in described["fields"]:
                choices = f" ({', '.join(field['choices'])})" if field["choices"] else ""
                print(f"  {'':20s}   {field['name']}={field['default']}{choices}: {field['help']}")
        print("networks\n  " + ", ".join(networks))
        print("codecs\n  " + ", ".join(codec_names()))
        print("recipes (described by unnoise ls --recipes)\n  " + ", ".join(recipes()))
        print("models")
        for name, method_name in models.items():
            print(f"  {printable(name):20s} {method_name}{': ' if descriptions[name] else ''}{descriptions[name]}")
        return 0

    def _recipes(self) -> int:
        from unnoise.recipes import recipes

        if self.as_json:
            known = {
                name: {field: value for field, value in asdict(recipe).items() if field != "options"}
                for name, recipe in recipes().items()
            }
            print(json.dumps({"recipes": known}, ensure_ascii=False))
            return 0
        for name, recipe in recipes().items():
            print(f"{name:20s} {printable(recipe.title)}{f': {printable(recipe.published)}' if recipe.published else ''}")
        return 0

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


def learned_exponents(model: "Model") -> list[tuple[str, float]]:
    """Return the learned exponents w_i with their tokens, from the first revealed (large) to the last, or an empty list."""
    from unnoise.schedule import PerToken

    learned = [module for module in model.process.modules() if isinstance(module, PerToken)]
    if not learned:
        return []
    values = learned[0].exponents().detach().tolist()
    return sorted(((visible(model.codec.show(i)), value) for i, value in enumerate(values)), key=lambda pair: -pair[1])

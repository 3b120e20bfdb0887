"""What commands that are told a whole run share: METHOD and options, or a recipe, but for what is typed."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from unnoise.recipes import Recipe, recipe
from unnoise.training.options import RunOptions

REPLACES = {  # an option that is typed → what no longer holds of a recipe, or of the run that goes on
    "--steps": ("steps", "minutes"),
    "--minutes": ("steps", "minutes", "warmup_steps"),
    "--warmup": ("warmup_steps",),
    "--size": ("width", "depth", "heads"),
}


@dataclass(frozen=True, kw_only=True)
class RunCommand(RunOptions):
    """A run by its method and options, or by a recipe."""

    method: Annotated[Positional[str], arg(metavar="METHOD", help="A name from `unnoise ls`; a recipe brings its own.")] = ""
    recipe: Annotated[
        str | None, arg(help="A published run by its name from `unnoise ls --recipes`, or a Python file; typed options win.")
    ] = None

    def options(self) -> RunOptions:
        """The run that this command describes."""
        return RunOptions(**{field.name: vars(self)[field.name] for field in fields(RunOptions)})

    def chosen_recipe(self) -> Recipe | None:
        """The recipe that is named, or ValueError if it does not go with the method."""
        if self.recipe is None:
            return None
        found = recipe(self.recipe)
        trains = found.options.method
        if self.method not in ("", trains, trains.partition(":")[0]):
            raise ValueError(f"the recipe {self.recipe} trains {trains}, not {self.method}: leave METHOD out")
        return found

    @property
    def recipe_name(self) -> str:
        """How the recipe is called, without the folder and the suffix of a file."""
        return Path(self.recipe or "").stem

    def defaults(self) -> dict[str, Any]:
        """What holds wherever nothing is typed: the recipe's options, where there is a recipe."""
        found = self.chosen_recipe()
        return asdict(found.options) if found else {}


def kept_defaults(defaults: dict[str, Any], arguments: Sequence[str]) -> dict[str, Any]:
    """Defaults without those that an option which is typed takes the place of."""
    typed = {word.split("=")[0].replace("_", "-") for word in arguments}
    replaced = {name for option, names in REPLACES.items() if option in typed for name in names}
    return {name: value for name, value in defaults.items() if name not in replaced}

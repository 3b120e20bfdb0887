"""Recipes, the options of published runs. The variable `mdlm_owt` of a module is the recipe mdlm-owt.

`unnoise train --recipe NAME` uses the options of a recipe, which further options override. `unnoise plan --recipe NAME`
estimates the cost. Nothing here imports torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from unnoise.registry import find, load_file, register_builtin, registered
from unnoise.training.training_options import RunOptions

VARIABLE = "recipe"  # name of the recipe in a user's file
MODULES = ("text8", "image_recipes", "web_text")
NO_CLIPPING = 1e9  # larger than the norm of any gradient
EPSILON = "1e-4"  # offset of the noise schedules in MD4's code


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A named run for `unnoise train --recipe NAME`.

    title: one-line description.
    options: options of `unnoise train`.
    paper: source of the run.
    published: the published result.
    differs: differences from the published run.
    vocab: vocabulary size, if the name of the codec does not determine it; used by `unnoise plan`, which loads no data.
    image: shape of the images, if there are any; used by `unnoise plan`.
    """

    title: str
    options: RunOptions
    paper: str = ""
    published: str = ""
    differs: str = ""
    vocab: int | None = None
    image: tuple[int, ...] = ()

    def variant(self, *, options: Mapping[str, Any], **fields: Any) -> "Recipe":
        """Return this recipe with some options and fields changed."""
        return replace(self, options=replace(self.options, **options), **fields)


PUBLISHED_RUN = RunOptions(
    method="mdlm",
    data="text8",
    size="base",
    steps=1_000_000,
    loss="paper",
    optimizer="adamw",
    eval_every=10_000,
    save_every=5000,
)
"""Options of all recipes; each sets its own method."""

TEXT8_RUN = replace(PUBLISHED_RUN, data="text8", codec="text8", length=256)
OPENWEBTEXT_RUN = replace(PUBLISHED_RUN, data="openwebtext", codec="gpt2:gpt2", length=1024)


def recipe(name: str) -> Recipe:
    """Return a recipe by name, or the variable `recipe` of a Python file; raise ValueError if there is none."""
    _register_builtin()
    path = Path(name)
    found = vars(load_file(path)).get(VARIABLE) if path.suffix == ".py" else find("recipe", name)
    if not isinstance(found, Recipe):
        raise ValueError(f"{name} must define `{VARIABLE} = unnoise.Recipe(…)`, found {type(found).__name__}")
    return found


def recipes() -> dict[str, Recipe]:
    """Return all recipes by name, including those of plug-ins."""
    _register_builtin()
    return {name: recipe(name) for name in registered("recipe")}


@cache
def _register_builtin() -> None:
    found = {name: value for module in MODULES for name, value in vars(import_module(f"{__name__}.{module}")).items()}
    recipes = {name.replace("_", "-"): value for name, value in found.items() if isinstance(value, Recipe)}
    register_builtin("recipe", dict(sorted(recipes.items())))

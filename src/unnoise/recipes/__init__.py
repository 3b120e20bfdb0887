"""Published runs as recipes. The variable `mdlm_owt` is the recipe mdlm-owt.

`unnoise train --recipe NAME` uses the options of the recipe, which further options override. `unnoise plan --recipe NAME`
estimates the cost. Nothing here imports torch.
"""

from functools import cache
from importlib import import_module
from pathlib import Path

from unnoise.recipes.recipe_base import Recipe
from unnoise.registry import find, load_file, register_builtin, registered

VARIABLE = "recipe"  # name of the recipe in a user's file
MODULES = ("text8", "image_recipes", "web_text")


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

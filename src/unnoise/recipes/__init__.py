"""Published runs as recipes. The variable `mdlm_owt` is the recipe mdlm-owt.

`unnoise train --recipe NAME` uses the options of the recipe, which further options override. `unnoise plan --recipe NAME`
estimates the cost. Nothing here imports torch.
"""

import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path

from unnoise.recipes.recipe_base import Recipe
from unnoise.registry import find, load_file, register_builtin, registered

VARIABLE = "recipe"  # name of the recipe in a user's file


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
    names = [module.name for module in pkgutil.iter_modules(__path__) if module.name != "base"]
    register_builtin("recipe", {name.replace("_", "-"): vars(import_module(f"{__name__}.{name}"))[name] for name in names})

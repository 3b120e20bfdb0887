"""Published runs as recipes, one file a run. A name is the file's, with - for _: `mdlm_owt.py` is mdlm-owt.

`unnoise train --recipe NAME` trains as the recipe says, but for what is typed beside it; `unnoise plan --recipe NAME` tells
what that takes. Nothing here imports torch.
"""

import pkgutil
from functools import cache
from importlib import import_module
from pathlib import Path

from unnoise.recipes.base import Recipe
from unnoise.registry import find, load_file, register_builtin, registered

VARIABLE = "recipe"  # what a file with a recipe calls it


def recipe(name: str) -> Recipe:
    """The recipe of this name, or that a Python file holds as `recipe`; ValueError if there is none."""
    _register_ours()
    path = Path(name)
    found = vars(load_file(path)).get(VARIABLE) if path.suffix == ".py" else find("recipe", name)
    if not isinstance(found, Recipe):
        raise ValueError(f"{name} must hold `{VARIABLE} = unnoise.Recipe(…)`, found {type(found).__name__}")
    return found


def recipes() -> dict[str, Recipe]:
    """All recipes by name, those of plug-ins included."""
    _register_ours()
    return {name: recipe(name) for name in registered("recipe")}


@cache
def _register_ours() -> None:
    files = [module.name for module in pkgutil.iter_modules(__path__) if module.name != "base"]
    ours = {name.replace("_", "-"): vars(import_module(f"{__name__}.{name}"))[VARIABLE] for name in files}
    register_builtin("recipe", ours)

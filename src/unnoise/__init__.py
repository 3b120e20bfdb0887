"""unnoise: discrete diffusion models, text first. Exact, tested, at home on a CPU.

The public names and their modules are listed in `__init__.pyi`, for type checkers and for this file alike. Each is loaded when
it is first used, so that `import unnoise` and `unnoise --help` do not wait for torch.
"""

import ast
from importlib import import_module, resources
from typing import Any

__version__ = "0.1.0"


def _public_names() -> dict[str, str]:
    """Each public name and the module that defines it."""
    listed = ast.parse(resources.files("unnoise").joinpath("__init__.pyi").read_text(encoding="utf-8"))
    imports = [node for node in listed.body if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_MODULE_OF = _public_names()
__all__ = list(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"unnoise has no {name!r}")
    value = vars(import_module(_MODULE_OF[name]))[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return ["__version__", *__all__]

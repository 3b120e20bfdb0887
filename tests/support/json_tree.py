"""The nodes of a JSON tree, for tests and benchmarks that damage one of them."""

from collections.abc import Iterator
from typing import Any


def places_in(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a JSON tree: what it is in, and its key or number there."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from places_in(tree[key])

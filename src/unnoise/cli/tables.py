"""`unnoise tables`: published results, and measured results next to them."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from unnoise.cli.base import Json


@dataclass
class TablesCommand:
    """Print published tables next to results of `unnoise eval --table` and `unnoise compare`.

    Example: unnoise tables text8
    Example: unnoise tables zero-shot --measured tables/zero-shot
    """

    names: Annotated[
        Positional[tuple[str, ...]],
        arg(metavar="NAME", help="text8, compression, zero-shot, openwebtext or images; default: all."),
    ] = ()
    measured: Annotated[
        UseAppendAction[tuple[Path, ...]],
        arg(help="Output folder of `unnoise eval --table` or `unnoise compare`. Repeat --measured for several folders."),
    ] = ()
    as_json: Json = False

    def run(self) -> int:
        from unnoise.evaluation.table_text import markdown, read_cells
        from unnoise.published_tables import TABLES, table

        chosen = [table(name) for name in self.names or TABLES]
        cells = [cell for folder in self.measured for cell in read_cells(folder)]
        if self.as_json:
            found = {"tables": [asdict(one) for one in chosen], "measured": [asdict(cell) for cell in cells]}
            print(json.dumps(found, ensure_ascii=False))
        else:
            print("\n".join(markdown(one, cells) for one in chosen), end="")
        return 0

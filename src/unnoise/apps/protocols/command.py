"""Lines of `unnoise eval --protocol` and `--table`.

`unnoise tables`: published results, and measured results next to them.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, UseAppendAction, arg

from unnoise.cli.command_base import Json

if TYPE_CHECKING:
    from unnoise.apps.protocols.protocols import Evaluation
    from unnoise.evaluation.table_text import Cell
    from unnoise.published_tables import PublishedTable


def described(found: "Evaluation") -> str:
    """Describe the published number, the bound, and the parts of their difference."""
    facts = found.as_dict()
    one, chunks, bound = found.protocol, found.chunks, facts["bound"]
    lines = [f"{one.name} ({one.paper}) on {found.benchmark.name}, {found.split}: {one.description}"]
    lost = f", {chunks.dropped:,} of {chunks.tokens:,} tokens in no window" if chunks.dropped else ""
    lines.append(
        f"{chunks.documents:,} documents, {len(chunks.x):,} windows of {chunks.x.shape[1]}{lost}; "
        f"measured on {found.windows:,} windows, {found.bound.tokens:,} tokens counted"
    )
    if chunks.x.shape[1] != found.benchmark.length and one.loss is not None:
        lines.append(f"published numbers use windows of {found.benchmark.length} tokens")
    if "published" in facts:
        mean = facts["published"]["mean"]
        value, unit = facts["published"]["value"], "bits per token" if one.bits else "perplexity"
        over = f"{mean['bits_per_token' if one.bits else 'perplexity']:.3f}"
        again = "" if found.exact else f" (one draw for each window; {over} on average over passes)"
        lines.append(f"as published   {value:.3f} {unit}{again}")
    kind = "exact" if found.exact else "true bound"
    error = "" if found.exact else f" ± {bound['perplexity_stderr']:.3f}"
    spread = "" if found.exact else f" ± {bound['bits_per_char_stderr']:.4f}"
    per_byte = f"{bound['bits_per_byte']:.4f} bits per byte" if found.benchmark.unit == "byte" else ""
    per_character = f"{bound['bits_per_char']:.4f}{spread} bits per character"
    draws = "" if found.exact else f"{found.draws} draws each"
    shown = f"{bound['perplexity']:.3f}{error} perplexity, {bound['bits_per_token']:.4f} bits per token"
    lines.append(f"{kind:14s} {', '.join(part for part in (shown, per_character, per_byte, draws) if part)}")
    if found.differences:
        lines += _difference(found)
    if chunks.specials:
        share = chunks.specials / (chunks.specials + chunks.tokens - chunks.dropped)
        lines.append(f"{share:.1%} of the tokens are BOS and EOS tokens of windows, which are easy to predict")
    return "\n".join(lines)


def _difference(found: "Evaluation") -> list[str]:
    nats, error = found.difference
    tokens = found.bound.tokens
    verdict = {
        None: "cannot be distinguished from the bound with these draws",
        True: f"lies {-nats:.5f} ± {error:.5f} nats per token above the bound",
        False: f"lies {nats:.5f} ± {error:.5f} nats per token below the bound, so it is not a bound",
    }[found.is_bound]
    lines = [f"on average the published number {verdict}; bound − published, {nats:+.5f} ± {error:.5f}, is the sum of"]
    for part in found.differences:
        spread = f" ± {part.stderr / tokens:.5f}" if part.stderr else ""
        lines.append(f"  {part.nats / tokens:+.5f}{spread}  {part.name}: {part.description}")
    return lines


def cell_line(table: "PublishedTable", cell: "Cell") -> str:
    """Describe a cell in one line, in the unit of the table."""
    found, bound = cell.found, cell.found["bound"]
    units = {column.benchmark: column.unit for column in table.columns}
    unit = units.get(cell.benchmark, "perplexity")
    key = {"bits per character": "bits_per_char"}.get(unit, unit.replace(" ", "_"))
    published = f"{found['published'][key]:9.3f} as published" if key in found.get("published", {}) else ""
    kind = "exact" if bound["exact"] else "bound"
    again = ", already computed" if cell.kept else ""
    return f"{cell.model}  {cell.benchmark:12s}{published}  {bound[key]:9.3f} {unit}, {kind}{again}"


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

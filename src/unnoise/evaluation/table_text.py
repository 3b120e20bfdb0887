"""Tables of published and measured results as text: Markdown with aligned columns, and CSV. Nothing here imports torch."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unnoise.published_tables import GPT2, GPT2_TOKENS, Column, PublishedTable, Result, Unit, of_method

CELLS, COMPARISON = "cells", "comparison.json"
HERE = "here"
PER_CHARACTER: Unit = "bits per character"
KEYS: dict[Unit, str] = {
    "perplexity": "perplexity",
    "bits per character": "bits_per_char",
    "bits per byte": "bits_per_byte",
    "bits per dimension": "bits_per_dimension",
}
MARKS = "¹²³⁴⁵⁶⁷⁸⁹"


@dataclass(frozen=True)
class Cell:
    """Result of one model on one data set. kept: whether it was already computed."""

    model: str
    benchmark: str
    found: dict[str, Any]
    kept: bool = False


def read_cells(folder: Path) -> list[Cell]:
    """Return the cells that `unnoise eval --table` or `unnoise compare` wrote to a folder, or raise ValueError."""
    files = sorted((folder / CELLS).glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
    try:
        found = [json.loads(path.read_text(encoding="utf-8")) for path in files]
        if (folder / COMPARISON).is_file():
            found += json.loads((folder / COMPARISON).read_text(encoding="utf-8"))["cells"]
        cells = [Cell(one["model"], one["benchmark"], one, True) for one in found if one["bound"] and one["tokenizer"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"the results in {folder} are damaged ({type(error).__name__}: {error})") from error
    if not cells:
        raise ValueError(f"{folder} holds no results: give the --out of `unnoise eval --table` or of `unnoise compare`")
    return list({(cell.model, cell.benchmark, cell.found.get("protocol")): cell for cell in cells}.values())


def markdown(table: PublishedTable, cells: Sequence[Cell] = ()) -> str:
    """Return a Markdown table of published rows, each followed by measured rows of the same method, with remarks."""
    cells = [cell for cell in cells if cell.benchmark in _names(table, cells)]
    columns = _columns(table, cells)
    units = {column.unit for column in columns}
    notes: list[str] = []
    rows: list[list[str]] = []
    models = list(dict.fromkeys(cell.model for cell in cells))
    placed: set[str] = set()
    for result in table.results:
        rows += _published_rows(table, result, columns, cells, notes)
        mine = [name for name in models if name not in placed and _belongs(table, result, _of_model(cells, name))]
        placed |= set(mine)
        rows += [row for name in mine for row in _measured_rows(name, columns, _of_model(cells, name), notes)]
    rows += [
        row for name in models if name not in placed for row in _measured_rows(name, columns, _of_model(cells, name), notes)
    ]
    one_unit = next(iter(units)) if len(units) == 1 else ""
    heads = [column.title if one_unit else f"{column.title} ({column.unit})" for column in columns]
    lines = [f"{table.title}: {f'{one_unit}, ' if one_unit else ''}smaller is better. Published rows: {table.source}.", ""]
    lines += aligned(["", "model", *(["tokens"] if _shows_tokens(table) else []), "result", *heads], rows)
    lines += ["", *_remarks(table, cells)] if cells else []
    lines += ["", *(f"{MARKS[i]} {note}." for i, note in enumerate(notes))] if notes else []
    return "\n".join(lines) + "\n"


def aligned(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table whose columns are as wide as their widest cell."""
    widths = [max(3, *(len(row[i]) for row in [head, *rows])) for i in range(len(head))]
    line = ["-" * width for width in widths]
    return [
        f"| {' | '.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))} |" for row in [head, line, *rows]
    ]


def _names(table: PublishedTable, cells: Sequence[Cell]) -> list[str]:
    """Return the data sets of a table: its own, and other zero-shot data sets that were measured."""
    own = [column.benchmark for column in table.columns]
    return [*own, *dict.fromkeys(cell.benchmark for cell in cells if table.name == "zero-shot" and cell.benchmark not in own)]


def _columns(table: PublishedTable, cells: Sequence[Cell]) -> list[Column]:
    known = {column.benchmark: column for column in table.columns}
    return [known.get(name) or Column(name, name, "perplexity", "") for name in _names(table, cells)]


def _shows_tokens(table: PublishedTable) -> bool:
    """Return whether the table has perplexities, which depend on the tokens."""
    return bool(table.tokens)


def _of_model(cells: Sequence[Cell], name: str) -> dict[str, Cell]:
    return {cell.benchmark: cell for cell in cells if cell.model == name}


def _belongs(table: PublishedTable, result: Result, mine: Mapping[str, Cell]) -> bool:
    """Return whether a published row is the first row of a model's method."""
    method = next(iter(mine.values())).found.get("method", "")
    return any(of_method(table, i, method) is result for i in range(len(table.columns)))


# ---- rows ----------------------------------------------------------------------------------------------------------------


def _published_rows(
    table: PublishedTable, result: Result, columns: Sequence[Column], cells: Sequence[Cell], notes: list[str]
) -> list[list[str]]:
    """Return a published row, and its bits per character if a measured model has the same tokens."""
    about = [words for words in (f"reported by {result.source}" if result.source else "", result.remark) if words]
    name = f"{result.model}{_mark('; '.join(about), notes) if about else ''}"
    tokens = [f"{table.tokens} {GPT2_TOKENS:,}"] if _shows_tokens(table) else []
    values = [table.shown(result, i) if i < len(table.columns) else "" for i in range(len(columns))]
    rows = [[result.group, name, *tokens, "published", *values]]
    per_character = []
    for i, column in enumerate(columns):
        ratio = _tokens_per_character(cells, column)
        value = result.values[i] if i < len(table.columns) else None
        per_character.append("" if ratio is None or value is None else _signed(math.log2(value) * ratio, 3, result.bound))
    if any(per_character):
        rows.append([result.group, name, *tokens, PER_CHARACTER, *per_character])
    return rows


def _signed(value: float, digits: int, bound: bool) -> str:
    return f"{'≤ ' if bound else ''}{value:.{digits}f}"


def _tokens_per_character(cells: Sequence[Cell], column: Column) -> float | None:
    """Return GPT-2's tokens per character of a data set, from a cell of a model with its tokens."""
    for cell in cells:
        bound = cell.found["bound"]
        if column.unit == "perplexity" and cell.benchmark == column.benchmark and cell.found["tokenizer"]["key"] == GPT2:
            return bound["bits_per_char"] / bound["bits_per_token"]
    return None


def _measured_rows(name: str, columns: Sequence[Column], mine: Mapping[str, Cell], notes: list[str]) -> list[list[str]]:
    """Return the rows of a model: the published number, the bound, and bits per character next to a perplexity."""
    first = next(iter(mine.values())).found
    label = name if name.endswith(first["method"]) else f"{name} ({first['method']})"
    if any(not cell.found.get("lossless", True) for cell in mine.values()):
        label += _mark(f"{name}: its codec changes the text, and these are results for the text as it reads it", notes)
    perplexity = any(column.unit == "perplexity" for column in columns)
    tokens = [f"{first['tokenizer']['name']} {first['tokenizer']['vocab']:,}"] if perplexity else []
    found = [(column, mine[column.benchmark].found if column.benchmark in mine else None) for column in columns]
    rows = []
    published = ["" if one is None else _published(one, column.unit) for column, one in found]
    if any(published):
        rows.append([HERE, label, *tokens, "as published", *published])
    kind = "exact" if all(one is None or one["bound"]["exact"] for _, one in found) else "bound"
    rows.append([HERE, label, *tokens, kind, *("" if one is None else _bound(one, column.unit) for column, one in found)])
    if perplexity:
        values = ("" if one is None else _bound(one, PER_CHARACTER) for _, one in found)
        rows.append([HERE, label, *tokens, PER_CHARACTER, *values])
    return rows


def _published(found: Mapping[str, Any], unit: Unit) -> str:
    value = found.get("published", {}).get(KEYS[unit])
    return "" if value is None else f"{value:.{_digits(unit)}f}"


def _bound(found: Mapping[str, Any], unit: Unit) -> str:
    bound, key = found["bound"], KEYS[unit]
    if key not in bound:
        return ""
    error = bound[f"{key}_stderr"]
    return f"{bound[key]:.{_digits(unit)}f}" + ("" if bound["exact"] or not error else f" ± {error:.{_digits(unit)}f}")


def _digits(unit: Unit) -> int:
    return 2 if unit == "perplexity" else 3


def _mark(words: str, notes: list[str]) -> str:
    """Return the mark of a note, and add the note if it is new."""
    if words not in notes:
        notes.append(words)
    return f" {MARKS[notes.index(words)]}" if notes.index(words) < len(MARKS) else " *"


# ---- remarks -------------------------------------------------------------------------------------------------------------


def _remarks(table: PublishedTable, cells: Sequence[Cell]) -> list[str]:
    """Return remarks about the measured rows."""
    names = list(dict.fromkeys(cell.found["protocol"] for cell in cells if "protocol" in cell.found))
    lines = [f"Rows marked {HERE} are measured on this machine{f', by the protocol {_listed(names)}' if names else ''}."]
    if sizes := [words for name in dict.fromkeys(cell.benchmark for cell in cells) if (words := _size(name, cells))]:
        lines.append(f"Published rows are of whole data sets, those marked {HERE} of {_listed(sizes)}.")
    tokenizers = {cell.found["tokenizer"]["key"]: cell.found["tokenizer"] for cell in cells}
    if _shows_tokens(table) and set(tokenizers) != {table.tokens}:
        others = [f"{one['name']} {one['vocab']:,}" for one in tokenizers.values() if one["key"] != table.tokens]
        known = _listed([f"{table.tokens} {GPT2_TOKENS:,}", *others])
        lines.append(
            f"A perplexity is per token, and not all rows have the same tokens ({known}): compare perplexities only between "
            "rows with the same tokens, and others by their bits per character."
        )
    return lines


def _size(name: str, cells: Sequence[Cell]) -> str:
    """Return how much of a data set was measured, such as "2,000 to 4,551 characters of ptb"."""
    counts = [round(cell.found["characters"]) for cell in cells if cell.benchmark == name and "characters" in cell.found]
    if not counts:
        return ""
    least = f"{min(counts):,} to " if min(counts) < max(counts) else ""
    return f"{least}{max(counts):,} characters of {name}"


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


# ---- CSV -----------------------------------------------------------------------------------------------------------------

COLUMNS = ("model", "benchmark", "split", "protocol", "windows", "counted_tokens", "published", "bound", "bound_stderr")
MORE = ("bound_nats_per_token", "bound_minus_published_nats", "exact", "bits_per_char", "bits_per_byte", "tokenizer", "vocab")


def as_csv(cells: Sequence[Cell]) -> str:
    """Return a line for each cell: perplexities, nats per token, bits, and the tokens."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *MORE])
    for cell in cells:
        found, bound = cell.found, cell.found["bound"]
        tokenizer = found.get("tokenizer", {})
        writer.writerow(
            [
                cell.model,
                cell.benchmark,
                found["split"],
                found["protocol"],
                found["windows"],
                found["counted_tokens"],
                found.get("published", {}).get("value", ""),
                bound.get("perplexity", ""),
                bound.get("perplexity_stderr", ""),
                bound["nats_per_token"],
                found.get("difference", {}).get("bound_minus_published", ""),
                bound["exact"],
                bound.get("bits_per_char", ""),
                bound.get("bits_per_byte", ""),
                tokenizer.get("name", ""),
                tokenizer.get("vocab", ""),
            ]
        )
    return text.getvalue()

"""Tables (.csv): of one column, a name and below it a text in each row; or the columns of a larger one that hold its texts."""

import csv
import io
from collections.abc import Sequence


def rows_as_lines(table: str, name: str) -> str:
    """The rows below the name of the column, each as a line; ValueError if there are more columns. name: of the file."""
    rows = _rows(table, name)
    widest = max(map(len, rows), default=1)
    if widest > 1:
        raise ValueError(f"{name} has {widest} columns: keep the one with the texts, under its name, or give lines of JSON")
    return "\n".join(" ".join(row[0].splitlines()) for row in rows[1:])


def column_texts(table: str, name: str, field: str, joined: Sequence[str] = ()) -> list[str]:
    """The texts of the column `field`, or of the columns `joined` with a blank between them; names in any case. A table whose
    first row has none of these names has no names: its last columns are the joined ones. ValueError if there are none."""
    rows = _rows(table, name)
    names = [cell.strip().lower() for cell in rows[0]] if rows else []
    if field in names:
        places, rows = [names.index(field)], rows[1:]
    elif joined and set(joined) <= set(names):
        places, rows = [names.index(one) for one in joined], rows[1:]
    elif joined and len(names) > len(joined) and names[0].isdigit():
        places = list(range(len(names) - len(joined), len(names)))
    else:
        wanted = " or ".join([repr(field), *([" and ".join(map(repr, joined))] if joined else [])])
        raise ValueError(f"{name} has no column {wanted}, but {', '.join(names[:9]) or 'none'}")
    short = [number for number, row in enumerate(rows, 1) if len(row) <= max(places)]
    if short:
        raise ValueError(f"row {short[0]} of {name} has {len(rows[short[0] - 1])} columns, too few for its texts")
    return [" ".join(row[place] for place in places) for row in rows]


def _rows(table: str, name: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(io.StringIO(table, newline="")) if row]
    except csv.Error as error:
        raise ValueError(f"{name} is no table: {error}") from error

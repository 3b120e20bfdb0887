"""Tables of one column (.csv): a name, and below it a text in each row."""

import csv
import io


def rows_as_lines(table: str, name: str) -> str:
    """The rows below the name of the column, each as a line; ValueError if there are more columns. name: of the file."""
    try:
        rows = [row for row in csv.reader(io.StringIO(table, newline="")) if row]
    except csv.Error as error:
        raise ValueError(f"{name} is no table: {error}") from error
    widest = max(map(len, rows), default=1)
    if widest > 1:
        raise ValueError(f"{name} has {widest} columns: keep the one with the texts, under its name, or give lines of JSON")
    return "\n".join(" ".join(row[0].splitlines()) for row in rows[1:])

"""Tables of published results, with their units and sources, to compare our measurements with.

The recipes, `unnoise compare`, `unnoise eval --table`, `unnoise tables` and docs/apps/tables.md take every number from here.
The values are the ones printed in the papers; none was measured with this package. Nothing here imports torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Unit = Literal["bits per character", "bits per byte", "bits per dimension", "perplexity"]
GPT2_TOKENS = 50_257
GPT2 = "GPT-2"  # tokenizer


@dataclass(frozen=True)
class Column:
    """A data set of a table.

    benchmark: its name in `unnoise eval --benchmark`, or of a file of images.
    title: its name in the papers.
    unit: unit of the values.
    split: split on which they were measured.
    """

    benchmark: str
    title: str
    unit: Unit
    split: str


@dataclass(frozen=True)
class Result:
    """A row of a table.

    group: its section.
    model: its name in the paper.
    values: a number for each column, None where there is none.
    bound: whether the numbers are upper bounds.
    method: our corresponding method, if any.
    source: the paper that reports the values, if not the table's source.
    remark: a note for the reader.
    """

    group: str
    model: str
    values: tuple[float | None, ...]
    bound: bool = True
    method: str = ""
    source: str = ""
    remark: str = ""


@dataclass(frozen=True)
class PublishedTable:
    """A table: its title, source, the protocol for our measurements, its data sets and its rows.

    tokens: the tokens that perplexities of this table count.
    """

    name: str
    title: str
    source: str
    protocol: str
    columns: tuple[Column, ...]
    results: tuple[Result, ...]
    tokens: str = ""

    def number(self, benchmark: str) -> int:
        """Return the index of a data set among the columns."""
        return [column.benchmark for column in self.columns].index(benchmark)

    def shown(self, result: Result, column: int) -> str:
        """Return one value as text, "≤ 1.37", or an empty string if there is none."""
        value = result.values[column]
        return "" if value is None else f"{'≤ ' if result.bound else ''}{value:.2f}"


HOOGEBOOM = "Hoogeboom et al. 2021, arXiv:2102.05379"
LOU, SHI = "Lou et al. 2023, arXiv:2310.16834", "Shi et al. 2024, arXiv:2406.04329"
WEBTEXT = "trained on WebText, and the others on OpenWebText"
RETRAINED = "trained again by the authors of MD4"

COMPRESSION = PublishedTable(
    name="compression",
    title="Compression of text8 and enwik8",
    source=f"{HOOGEBOOM}, table 3",
    protocol="bound",
    columns=(
        Column("text8", "text8", "bits per character", "test"),
        Column("enwik8", "enwik8", "bits per byte", "test"),
    ),
    results=(
        Result("ARM", "64 Layer Transformer (Al-Rfou et al. 2019)", (1.13, 1.06), bound=False, method="ar"),
        Result("ARM", "TransformerXL (Dai et al. 2019)", (1.08, 0.99), bound=False),
        Result("VAE", "AF/AF (AR) (Ziegler and Rush 2019)", (1.62, 1.72), bound=False),
        Result("VAE", "IAF/SCF (Ziegler and Rush 2019)", (1.88, 2.03), bound=False),
        Result("VAE", "CategoricalNF (AR) (Lippe and Gavves 2020)", (1.45, None), bound=False),
        Result("Generative flow", "Argmax Flow, AR", (1.39, 1.42), bound=False),
        Result("Generative flow", "Argmax Coupling Flow", (1.82, 1.93), bound=False),
        Result("Diffusion", "Multinomial Text Diffusion", (1.72, 1.75), method="multinomial"),
    ),
)
TEXT8 = PublishedTable(
    name="text8",
    title="text8",
    source=SHI,
    protocol="bound",
    columns=(Column("text8", "text8", "bits per character", "test"),),
    results=(
        Result("Continuous diffusion", "Plaid", (1.48,), method="gaussian", remark="implemented by the authors of MD4"),
        Result("Continuous diffusion", "BFN", (1.41,), method="bfn"),
        Result("Any-order autoregressive", "ARDM", (1.43,), method="ardm"),
        Result("Any-order autoregressive", "MAC", (1.40,)),
        Result("Autoregressive", "IAF/SCF", (1.88,), bound=False),
        Result("Autoregressive", "AR Argmax Flow", (1.39,), bound=False),
        Result("Autoregressive", "Discrete Flow", (1.23,), bound=False),
        Result("Autoregressive", "Transformer AR", (1.23,), bound=False, method="ar"),
        Result("Discrete diffusion", "Multinomial Diffusion", (1.72,), method="multinomial"),
        Result("Discrete diffusion", "D3PM Uniform", (1.61,), method="d3pm-uniform"),
        Result("Discrete diffusion", "D3PM Absorb", (1.45,), method="d3pm-absorb"),
        Result(
            "Discrete diffusion", "SEDD Absorb", (1.41,), method="sedd-absorb", remark="reported as 1.32 before, by mistake"
        ),
        Result("Discrete diffusion", "MD4", (1.37,), method="md4"),
        Result("Discrete diffusion", "GenMD4", (1.34,), method="genmd4"),
    ),
)
ZERO_SHOT = PublishedTable(
    name="zero-shot",
    title="Zero-shot evaluation of models trained on OpenWebText",
    source=f"{LOU}, table 1",
    protocol="sedd",
    tokens=GPT2,
    columns=(
        Column("lambada", "LAMBADA", "perplexity", "test"),
        Column("wikitext2", "WikiText2", "perplexity", "valid"),
        Column("ptb", "PTB", "perplexity", "valid"),
        Column("wikitext103", "WikiText103", "perplexity", "valid"),
        Column("lm1b", "1BW", "perplexity", "test"),
    ),
    results=(
        Result("Small", "GPT-2", (45.04, 42.43, 138.43, 41.60, 75.20), bound=False, method="ar", remark=WEBTEXT),
        Result("Small", "D3PM", (93.47, 77.28, 200.82, 75.16, 138.92), method="d3pm-absorb"),
        Result("Small", "PLAID", (57.28, 51.80, 142.60, 50.86, 91.12), method="gaussian"),
        Result("Small", "SEDD Uniform", (65.40, 50.27, 140.12, 49.60, 101.37), method="sedd-uniform"),
        Result("Small", "SEDD Absorb", (50.92, 41.84, 114.24, 40.62, 79.29), method="sedd-absorb"),
        Result("Small", "SEDD Absorb (reimpl.)", (49.73, 38.94, 107.54, 39.15, 72.96), source=SHI, remark=RETRAINED),
        Result("Small", "MD4", (48.43, 34.94, 102.26, 35.90, 68.10), method="md4", source=SHI),
        Result("Medium", "GPT-2", (35.66, 31.80, 123.14, 31.39, 55.72), bound=False, remark=WEBTEXT),
        Result("Medium", "SEDD Uniform", (51.28, 38.93, 102.28, 36.81, 79.12)),
        Result("Medium", "SEDD Absorb", (42.77, 31.04, 87.12, 29.98, 61.19)),
        Result("Medium", "MD4", (44.12, 25.84, 66.07, 25.84, 51.45), source=SHI),
    ),
)
OPENWEBTEXT = PublishedTable(
    name="openwebtext",
    title="Validation on OpenWebText",
    source=SHI,
    protocol="sedd",
    tokens=GPT2,
    columns=(Column("openwebtext", "OpenWebText", "perplexity", "valid"),),
    results=(
        Result("Small", "Gaussian Diffusion", (27.28,), method="gaussian", remark="Plaid, implemented by the authors of MD4"),
        Result("Small", "SEDD Absorb (reimpl.)", (24.10,), method="sedd-absorb", remark=RETRAINED),
        Result("Small", "MD4", (22.13,), method="md4"),
        Result("Small", "GenMD4", (21.80,), method="genmd4"),
        Result("Medium", "MD4", (16.64,)),
    ),
)
IMAGES = PublishedTable(
    name="images",
    title="Images of 256 levels",
    source=SHI,
    protocol="bound",
    columns=(
        Column("cifar10", "CIFAR-10", "bits per dimension", "test"),
        Column("imagenet64", "ImageNet 64×64", "bits per dimension", "valid"),
    ),
    results=(Result("Discrete diffusion", "MD4", (2.75, 3.40), method="md4"),),
)
TABLES = {one.name: one for one in (TEXT8, COMPRESSION, ZERO_SHOT, OPENWEBTEXT, IMAGES)}


def table(name: str) -> PublishedTable:
    """Return a table by its name, or raise ValueError."""
    if name not in TABLES:
        raise ValueError(f"unknown table {name!r}: use one of {', '.join(TABLES)}")
    return TABLES[name]


def result(of: PublishedTable, model: str, group: str | None = None) -> Result:
    """Return the row of a model, or raise ValueError."""
    found = [row for row in of.results if row.model == model and group in (None, row.group)]
    if len(found) != 1:
        raise ValueError(f"the table {of.name} has {len(found)} rows of {model}")
    return found[0]


def reported(name: str, model: str, benchmark: str, group: str | None = None) -> str:
    """Return a value with its unit and split, "≤ 1.37 bits per character (test)"."""
    of = table(name)
    place = of.number(benchmark)
    column, value = of.columns[place], of.shown(result(of, model, group), place)
    split = {"valid": "validation"}.get(column.split, column.split)
    number = f"perplexity {value}" if column.unit == "perplexity" else f"{value} {column.unit}"
    return f"{number} ({split})"


def plain_name(name: str) -> str:
    """Return the lower-case letters and digits of a name: "WikiText-2" → "wikitext2"."""
    return "".join(c for c in name.lower() if c.isalnum())


def column_of_data(data: str) -> tuple[PublishedTable, int] | None:
    """Return the table and column of a data set by the name of its file or folder, or None if no table has it.

    text8 is in two tables; the one with more methods is returned.
    """
    if "," in data:  # a mixture
        return None
    for part in reversed(Path(data).parts[-2:]):
        named = plain_name(part)
        for of in (TEXT8, COMPRESSION, OPENWEBTEXT, IMAGES):
            for place, column in enumerate(of.columns):
                if named.startswith(plain_name(column.benchmark)):
                    return of, place
    return None


def of_method(of: PublishedTable, column: int, method: str) -> Result | None:
    """Return the row of one of our methods, or None if the papers report none."""
    name = method.partition(":")[0]
    rows: Sequence[Result] = [row for row in of.results if row.method == name and row.values[column] is not None]
    return rows[0] if rows else None

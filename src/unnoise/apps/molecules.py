"""Generated molecules (SMILES strings): measures of their quality, and drawings.

Measures are taken from MOSES (Polykovskiy et al. 2020, arXiv:1811.12823). Two strings are the same molecule if their canonical
SMILES agree.

Fréchet ChemNet distance (Preuer et al. 2018, arXiv:1803.09518): |μ − ν|² + Tr(A + B − 2(AB)^½) of normal distributions fitted
to the activations of the network ChemNet on two sets of molecules. It is larger for smaller sets, so their sizes are reported
too.
"""

import importlib
import importlib.util
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from unnoise.files import check_writable, write_atomically

BITS, RADIUS = 1024, 2  # size of a fingerprint
AT_ONCE = 256  # batch of ChemNet
PAIRS = 512  # rows of the similarity matrix computed together
COLUMNS, WIDTH, HEIGHT = 4, 340, 250  # molecules in a row, size of each in pixels
LEGEND = 13  # font size
SCALE = 7.0  # dots per ångström; a drawn bond has 1.5 Å
BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # rows of two dots, from the top


def rdkit(module: str) -> Any:
    """Return a module of RDKit, with its messages about invalid strings disabled. Raise ValueError if it is not installed."""
    try:
        importlib.import_module("rdkit.RDLogger").DisableLog("rdApp.*")
        return importlib.import_module(f"rdkit.{module}")
    except ModuleNotFoundError as error:
        raise ValueError("molecules need RDKit: pip install 'unnoise[molecules]'") from error


def canonical(smiles: str) -> str | None:
    """Return the canonical SMILES of a molecule, or None if the string is invalid."""
    chem = rdkit("Chem")
    molecule = chem.MolFromSmiles(smiles) if smiles.strip() else None
    return None if molecule is None else chem.MolToSmiles(molecule)


class MoleculeQuality(NamedTuple):
    """Measures of generated molecules.

    valid: share of strings that RDKit can parse.
    unique_1k, unique_10k: share of distinct molecules among the first k valid ones.
    novel: share of the distinct valid molecules that are not in the training data.
    diversity: 1 − the mean Tanimoto similarity |a ∧ b| / |a ∨ b| of all pairs of Morgan fingerprints (radius 2, 1024 bits).
    length: mean length of the strings.
    """

    valid: float = 0.0
    unique_1k: float = 0.0
    unique_10k: float = 0.0
    novel: float = 0.0
    diversity: float = 0.0
    length: float = 0.0


def molecule_quality(written: Sequence[str], trained_on: Collection[str]) -> MoleculeQuality:
    """Measure generated strings against the canonical SMILES of the training data."""
    valid = [found for found in map(canonical, written) if found is not None]
    length = float(np.mean([len(smiles) for smiles in written]))
    if not valid:
        return MoleculeQuality(length=length)
    distinct = set(valid)
    known = trained_on if isinstance(trained_on, set | frozenset) else set(trained_on)
    return MoleculeQuality(
        valid=len(valid) / len(written),
        unique_1k=len(set(valid[:1000])) / len(valid[:1000]),
        unique_10k=len(set(valid[:10000])) / len(valid[:10000]),
        novel=len(distinct - known) / len(distinct),
        diversity=internal_diversity(fingerprints(valid)),
        length=length,
    )


def fingerprints(molecules: Sequence[str]) -> np.ndarray:
    """Return the Morgan fingerprints of molecules: [n, 1024] float32, 0 or 1."""
    chem = rdkit("Chem")
    make = rdkit("Chem.rdFingerprintGenerator").GetMorganGenerator(radius=RADIUS, fpSize=BITS)
    return np.stack([make.GetFingerprintAsNumPy(chem.MolFromSmiles(one)) for one in molecules]).astype(np.float32)


def internal_diversity(bits: np.ndarray) -> float:
    """Return 1 − the mean Tanimoto similarity of all pairs of fingerprints [n, ·], each with itself included.

    Two empty fingerprints are equal.
    """
    counts = bits.sum(1)
    total = 0.0
    for start in range(0, len(bits), PAIRS):
        both = bits[start : start + PAIRS] @ bits.T
        either = counts[start : start + PAIRS, None] + counts - both
        total += float(np.divide(both, either, out=np.ones_like(both), where=either > 0).sum(dtype=np.float64))
    return 1 - total / len(bits) ** 2


def has_chemnet() -> bool:
    """Return whether the package fcd_torch is installed, which contains ChemNet's weights."""
    return importlib.util.find_spec("fcd_torch") is not None


@torch.no_grad()
def chemnet_activations(molecules: Sequence[str]) -> np.ndarray:
    """Return the activations of ChemNet's last layer: [n, 512] float64."""
    if not has_chemnet():
        raise ValueError("the Fréchet ChemNet distance needs ChemNet: pip install 'unnoise[molecules]'")
    rdkit("Chem")
    package = importlib.import_module("fcd_torch.utils")
    weights = Path(str(package.__file__)).parent / "ChemNet_v0.13_pretrained.pt"
    network = package.load_imported_model(torch.load(weights, weights_only=True)).eval()
    read = package.SmilesDataset(molecules)
    found = []
    for start in range(0, len(molecules), AT_ONCE):
        some = [read[i] for i in range(start, min(start + AT_ONCE, len(molecules)))]
        found.append(network(torch.from_numpy(np.stack(some)).transpose(1, 2).float()).double().numpy())
    return np.concatenate(found)


def frechet_distance(a: np.ndarray, b: np.ndarray) -> float:
    """Return |μ − ν|² + Tr(A + B − 2(AB)^½) of the means and covariances of two sets of points, [n, d] and [m, d].

    Tr (AB)^½ is the sum of the square roots of the eigenvalues of A^½ B A^½, which is symmetric.
    """
    if min(len(a), len(b)) < 2:
        raise ValueError(f"a covariance needs at least 2 points, found {min(len(a), len(b))}")
    (mean_a, cov_a), (mean_b, cov_b) = ((x.mean(0), np.atleast_2d(np.cov(x, rowvar=False))) for x in (a, b))
    values, vectors = np.linalg.eigh(cov_a)
    root = vectors * np.sqrt(values.clip(0)) @ vectors.T
    cross = np.sqrt(np.linalg.eigvalsh(root @ cov_b @ root).clip(0)).sum()
    return float(((mean_a - mean_b) ** 2).sum() + np.trace(cov_a) + np.trace(cov_b) - 2 * cross)


def draw_molecules(smiles: Sequence[str], path: Path) -> int:
    """Draw the valid molecules as a grid with their SMILES to a PNG file, and return their number."""
    check_writable(path, (".png",))
    chem, drawing = rdkit("Chem"), rdkit("Chem.Draw.rdMolDraw2D")
    molecules = {text: chem.MolFromSmiles(text) for text in smiles if text.strip()}
    valid = {text: molecule for text, molecule in molecules.items() if molecule is not None}
    if not valid:
        raise ValueError(f"none of the {len(smiles)} strings is a molecule: there is nothing to draw")
    columns = min(COLUMNS, len(valid))
    rows = -(-len(valid) // columns)
    picture = drawing.MolDraw2DCairo(columns * WIDTH, rows * HEIGHT, WIDTH, HEIGHT)
    picture.drawOptions().legendFontSize = LEGEND
    picture.drawOptions().padding = 0.08
    picture.DrawMolecules(list(valid.values()), legends=list(valid))
    picture.FinishDrawing()
    write_atomically(path, picture.GetDrawingText())
    return len(valid)


def molecule_in_characters(smiles: str, columns: int = 64) -> str:
    """Draw a molecule as lines of text, with bonds as Braille dots and letters for atoms other than carbon.

    A character has 2 × 4 dots, which are about as wide as high. Raise ValueError if the string is not a molecule.
    """
    chem, depict = rdkit("Chem"), rdkit("Chem.rdDepictor")
    molecule = chem.MolFromSmiles(smiles) if smiles.strip() else None
    if molecule is None:
        raise ValueError(f"{smiles!r} is not a molecule")
    depict.Compute2DCoords(molecule, canonOrient=True)
    places = molecule.GetConformer().GetPositions()[:, :2]
    places = (places - places.min(0)) * [1, -1]
    places -= places.min(0)
    size = min(SCALE, (2 * columns - 6) / max(places[:, 0].max(), 1e-9))
    points = [(3 + round(size * x), 2 + round(size * y)) for x, y in places]
    canvas = DotCanvas(max(x for x, _ in points) + 4, max(y for _, y in points) + 3)
    for bond in molecule.GetBonds():
        start, stop = points[bond.GetBeginAtomIdx()], points[bond.GetEndAtomIdx()]
        lines = {"SINGLE": (0,), "TRIPLE": (-2, 0, 2)}.get(bond.GetBondType().name, (-1, 1))
        for apart in lines:
            canvas.line(start, stop, apart)
    for atom, (x, y) in zip(molecule.GetAtoms(), points, strict=True):
        if atom.GetSymbol() != "C":
            canvas.letter(x, y, atom.GetSymbol())
    return canvas.text()


class DotCanvas:
    """Canvas of Braille dots, eight to a character, with letters on top."""

    def __init__(self, width: int, height: int):
        self.columns, self.rows = -(-width // 2), -(-height // 4)
        self.dots = [[0] * self.columns for _ in range(self.rows)]
        self.letters: dict[tuple[int, int], str] = {}

    def line(self, start: tuple[int, int], stop: tuple[int, int], apart: int = 0) -> None:
        """Draw a line between two points, shifted sideways by `apart` dots."""
        (x, y), (dx, dy) = start, (stop[0] - start[0], stop[1] - start[1])
        length = max(abs(dx), abs(dy), 1)
        long = max((dx * dx + dy * dy) ** 0.5, 1e-9)
        side_x, side_y = -dy / long * apart, dx / long * apart
        for i in range(length + 1):
            self.dot(round(x + dx * i / length + side_x), round(y + dy * i / length + side_y))

    def dot(self, x: int, y: int) -> None:
        if 0 <= x < 2 * self.columns and 0 <= y < 4 * self.rows:
            self.dots[y // 4][x // 2] |= BRAILLE[y % 4][x % 2]

    def letter(self, x: int, y: int, text: str) -> None:
        """Write text on top of the dots."""
        for i, one in enumerate(text):
            self.letters[y // 4, min(x // 2 + i, self.columns - 1)] = one

    def text(self) -> str:
        """Return the lines without trailing spaces."""
        characters = [[chr(0x2800 + dots) if dots else " " for dots in line] for line in self.dots]
        for (row, column), letter in self.letters.items():
            characters[row][column] = letter
        return "\n".join("".join(line).rstrip() for line in characters)

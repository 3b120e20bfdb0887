"""Molecules as a picture, and as lines of text."""

from collections.abc import Sequence
from pathlib import Path

from unnoise.evaluation.molecules import rdkit
from unnoise.files import check_writable, write_atomically

COLUMNS, WIDTH, HEIGHT = 4, 340, 250  # molecules in a row, pixels of each
LEGEND = 13  # height of the letters
DOTS_OF_A_BOND = 7.0  # for each ångström of a drawn bond, which has one and a half
BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # rows of two dots, from the top


def draw_molecules(smiles: Sequence[str], path: Path) -> int:
    """Draw those of the strings that are molecules as a grid, each with its SMILES, into a PNG; returns how many there were."""
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
    """A molecule's formula as lines of text: bonds drawn in Braille dots, letters for atoms other than carbon.

    A character holds 2 × 4 dots, which are about as wide as high. ValueError if the string is no molecule.
    """
    chem, depict = rdkit("Chem"), rdkit("Chem.rdDepictor")
    molecule = chem.MolFromSmiles(smiles) if smiles.strip() else None
    if molecule is None:
        raise ValueError(f"{smiles!r} is no molecule")
    depict.Compute2DCoords(molecule, canonOrient=True)
    places = molecule.GetConformer().GetPositions()[:, :2]
    places = (places - places.min(0)) * [1, -1]
    places -= places.min(0)
    size = min(DOTS_OF_A_BOND, (2 * columns - 6) / max(places[:, 0].max(), 1e-9))
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
    """A picture of dots, eight to a character, with letters over it."""

    def __init__(self, width: int, height: int):
        self.columns, self.rows = -(-width // 2), -(-height // 4)
        self.dots = [[0] * self.columns for _ in range(self.rows)]
        self.letters: dict[tuple[int, int], str] = {}

    def line(self, start: tuple[int, int], stop: tuple[int, int], apart: int = 0) -> None:
        """The dots from one place to another, moved sideways by so many."""
        (x, y), (dx, dy) = start, (stop[0] - start[0], stop[1] - start[1])
        length = max(abs(dx), abs(dy), 1)
        long = max((dx * dx + dy * dy) ** 0.5, 1e-9)
        side_x, side_y = -dy / long * apart, dx / long * apart
        for i in range(length + 1):
            self.dot(round(x + dx * i / length + side_x), round(y + dy * i / length + side_y))

    def dot(self, x: int, y: int) -> None:
        """One dot; what is outside is not drawn."""
        if 0 <= x < 2 * self.columns and 0 <= y < 4 * self.rows:
            self.dots[y // 4][x // 2] |= BRAILLE[y % 4][x % 2]

    def letter(self, x: int, y: int, text: str) -> None:
        """A name over the dots at a place."""
        for i, one in enumerate(text):
            self.letters[y // 4, min(x // 2 + i, self.columns - 1)] = one

    def text(self) -> str:
        """The lines, without blanks at their ends."""
        lines = (
            "".join(
                self.letters.get((row, column)) or (chr(0x2800 + dots) if dots else " ") for column, dots in enumerate(line)
            )
            for row, line in enumerate(self.dots)
        )
        return "\n".join(line.rstrip() for line in lines)

"""Pictures of molecules, and drawings of molecules in characters."""

from collections.abc import Sequence
from pathlib import Path

from unnoise.evaluation.molecules import rdkit
from unnoise.files import check_writable, write_atomically

COLUMNS, WIDTH, HEIGHT = 4, 340, 250  # molecules in a row, size of each in pixels
LEGEND = 13  # font size
DOTS_OF_A_BOND = 7.0  # dots per ångström; a drawn bond has 1.5 Å
BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # rows of two dots, from the top


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
    """Canvas of Braille dots, eight to a character, with letters on top."""

    def __init__(self, width: int, height: int):
        self.columns, self.rows = -(-width // 2), -(-height // 4)
        self.dots = [[0] * self.columns for _ in range(self.rows)]
        self.letters: dict[tuple[int, int], str] = {}

    def line(self, start: tuple[int, int], stop: tuple[int, int], apart: int = 0) -> None:
        """Draw a line between two points, moved sideways by `apart` dots."""
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
        lines = (
            "".join(
                self.letters.get((row, column)) or (chr(0x2800 + dots) if dots else " ") for column, dots in enumerate(line)
            )
            for row, line in enumerate(self.dots)
        )
        return "\n".join(line.rstrip() for line in lines)

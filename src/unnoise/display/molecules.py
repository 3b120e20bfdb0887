"""Molecules as a picture."""

from collections.abc import Sequence
from pathlib import Path

from unnoise.evaluation.molecules import rdkit
from unnoise.files import check_writable, write_atomically

COLUMNS, WIDTH, HEIGHT = 4, 340, 250  # molecules in a row, pixels of each
LEGEND = 13  # height of the letters


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

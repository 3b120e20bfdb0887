"""Molecules: each measure against its definition on a few of them, the picture, and tables of one column."""

import gzip
import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

import unnoise
from unnoise.apps import molecules as measures
from unnoise.apps.molecules import DotCanvas, frechet_distance, internal_diversity, molecule_in_characters
from unnoise.cli.main import main
from unnoise.data.corpus import read_text

ETHANOL, BENZENE, ASPIRIN = "CCO", "c1ccccc1", "CC(=O)Oc1ccccc1C(=O)O"


def test_the_measures_are_as_defined() -> None:
    pytest.importorskip("rdkit", reason="the molecules extra is not installed")
    written = [ETHANOL, "OCC", BENZENE, "C1=CC=CC=C1", ASPIRIN, "C1CC", "", "c1cccc1", "CCO)"]
    found = measures.molecule_quality(written, {ETHANOL})
    assert found.valid == 5 / 9  # open rings, empty strings, and what has no Kekulé form are none
    assert found.unique_1k == found.unique_10k == 3 / 5 and found.novel == 2 / 3
    assert found.length == sum(map(len, written)) / 9
    valid = [ETHANOL, ETHANOL, BENZENE, BENZENE, ASPIRIN]
    bits = [set(np.flatnonzero(row)) for row in measures.fingerprints(valid)]
    alike = [len(a & b) / len(a | b) for a, b in itertools.product(bits, bits)]
    assert found.diversity == pytest.approx(1 - np.mean(alike), abs=1e-6)
    assert measures.molecule_quality(["C1CC"], set())[:4] == (0, 0, 0, 0)


def test_the_diversity_of_any_bits() -> None:
    bits = np.random.default_rng(0).integers(0, 2, (700, 8)).astype(np.float32)  # more rows than are taken at once
    bits[:3] = 0
    rows = [set(np.flatnonzero(row)) for row in bits[:40]]
    alike = [len(a & b) / len(a | b) if a | b else 1 for a, b in itertools.product(rows, rows)]
    assert internal_diversity(bits[:40]) == pytest.approx(1 - np.mean(alike), abs=1e-6)
    assert internal_diversity(np.concatenate([bits, bits])) == pytest.approx(internal_diversity(bits), abs=1e-6)


def test_the_frechet_distance_of_known_normals() -> None:
    """For covariances that commute it is |μ − ν|² + Σ (√a − √b)², a and b their eigenvalues."""
    draw = np.random.default_rng(0)
    points = draw.normal(size=(500, 6))
    points = (points - points.mean(0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(points, rowvar=False))).T  # covariance 1
    turn, _ = np.linalg.qr(draw.normal(size=(6, 6)))
    a, b, shift = draw.uniform(0, 3, 6), draw.uniform(0, 3, 6), draw.normal(size=6)
    for smallest, error in ((a[0], 1e-12), (0, 1e-7)):  # without full rank, the root of a rounding error
        a[0] = smallest
        wanted = (shift**2).sum() + ((np.sqrt(a) - np.sqrt(b)) ** 2).sum()
        found = frechet_distance(points * np.sqrt(a) @ turn.T, points * np.sqrt(b) @ turn.T + shift)
        assert found == pytest.approx(wanted, rel=error)
    assert frechet_distance(points, points) == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="at least 2 points, found 1"):
        frechet_distance(points, points[:1])


def test_chemnet_tells_molecules_apart() -> None:
    pytest.importorskip("rdkit", reason="the molecules extra is not installed")
    pytest.importorskip("fcd_torch", reason="the molecules extra is not installed")
    found = measures.chemnet_activations([ETHANOL, "OCC", ASPIRIN])
    assert found.shape == (3, 512) and np.allclose(found[0], found[1]) and not np.allclose(found[0], found[2])


def test_the_picture(tmp_path: Path) -> None:
    pytest.importorskip("rdkit", reason="the molecules extra is not installed")
    from unnoise.apps.molecules import draw_molecules

    assert draw_molecules([ETHANOL, "C1CC", ASPIRIN], tmp_path / "two.png") == 2
    assert (tmp_path / "two.png").read_bytes()[:4] == b"\x89PNG"
    with pytest.raises(ValueError, match="none of the 2 strings is a molecule"):
        draw_molecules(["C1CC", ""], tmp_path / "none.png")
    with pytest.raises(ValueError, match=r"ends in \.png"):
        draw_molecules([ETHANOL], tmp_path / "two.jpg")


def test_without_rdkit_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rdkit.RDLogger", None)
    with pytest.raises(ValueError, match=r"molecules need RDKit: pip install 'unnoise\[molecules\]'"):
        measures.canonical(ETHANOL)


# ---- tables of one column ---------------------------------------------------------------------------------------------


def test_a_table_of_one_column_is_read_as_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gzip.open(tmp_path / "train.csv.gz", "wt") as file:
        file.write('SMILES\r\nCCO\r\n"two\nlines, quoted"\r\n\r\nc1ccccc1\r\n')
    (tmp_path / "test.csv").write_text("SMILES\nCO\n")
    assert read_text(tmp_path / "train.csv.gz") == "CCO\ntwo lines, quoted\nc1ccccc1"
    source = unnoise.corpus(str(tmp_path))
    codec = source.codec("chars", "documents")
    rows = source.texts(codec, "train", 20, "documents").windows().tolist()
    assert [codec.decode([token for token in row if token >= 0]) for row in rows] == ["CCO", "two lines, quoted", "c1ccccc1"]
    assert source.splits == ["train", "test"]
    (tmp_path / "two.csv").write_text("SMILES,SPLIT\nCCO,train\n")
    assert main(["train", "ar", "--data", str(tmp_path / "two.csv"), "--out", str(tmp_path / "run"), "--steps", "1"]) == 2
    assert capsys.readouterr().err.startswith("unnoise: two.csv has 2 columns: keep the one with the texts")
    (tmp_path / "none.csv").write_text("SMILES\n")
    with pytest.raises(ValueError, match="is empty"):
        unnoise.corpus(str(tmp_path / "none.csv"))


def test_a_molecule_in_characters() -> None:
    """Letters for the atoms that are no carbon, dots for the bonds; it fits into the columns."""
    pytest.importorskip("rdkit", reason="the molecules extra is not installed")
    drawn = molecule_in_characters(ASPIRIN)
    assert sum(line.count("O") for line in drawn.splitlines()) == 4
    assert any("\u2800" < c <= "\u28ff" for c in drawn)
    assert set(drawn) - {"O", " ", "\n"} <= {chr(code) for code in range(0x2801, 0x2900)}
    assert max(map(len, molecule_in_characters("C" * 40, 30).splitlines())) <= 30
    assert "Cl" in molecule_in_characters("CCCl") and molecule_in_characters("C").strip() == ""
    for none in ("", "C1CC"):
        with pytest.raises(ValueError, match="is not a molecule"):
            molecule_in_characters(none)


def test_dots_of_a_picture() -> None:
    canvas = DotCanvas(4, 8)
    canvas.line((0, 0), (3, 7))
    canvas.dot(9, 9)  # outside
    canvas.letter(3, 0, "N")
    assert canvas.text() == "⢣N\n ⢣"

"""How good a model's molecules are, beside the published baselines of MOSES: valid, unique, novel, diverse, like real ones.

    python benchmarks/molecules.py --model runs/molecules --data path/to/moses --samples 10000 --draw molecules.png

The folder holds MOSES's train.csv.gz and test.csv.gz, or train.txt and test.txt with a molecule on each line. The Fréchet
ChemNet distance (FCD) is of the first `--fcd` valid molecules to as many test molecules drawn at random, and beside it stands
that of as many training molecules: the published ones are of 30,000 to all 176,074, and a distance of fewer is larger. `--fcd
0` leaves it out. `--json` prints one object instead of the table.
"""

import argparse
import json
import random
from pathlib import Path

import unnoise
from unnoise.apps.molecules import (
    MoleculeQuality,
    canonical,
    chemnet_activations,
    draw_molecules,
    frechet_distance,
    has_chemnet,
    molecule_quality,
)
from unnoise.data.corpus import read_text

BASELINES = {  # valid, unique@10k, novel, FCD to the test set; Polykovskiy et al. 2020
    "training set": (None, None, None, 0.008),
    "CharRNN": (0.975, 0.999, 0.842, 0.073),
    "VAE": (0.977, 0.998, 0.695, 0.099),
    "AAE": (0.937, 0.997, 0.793, 0.556),
    "JTN-VAE": (1.0, 0.9996, 0.914, 0.395),
    "LatentGAN": (0.897, 0.997, 0.950, 0.296),
}
DRAWN = 12


def molecules_of(folder: Path, split: str) -> list[str]:
    """The molecules of a split, as they are written there."""
    there = [folder / f"{split}{suffix}" for suffix in (".txt", ".txt.gz", ".csv", ".csv.gz")]
    path = next((path for path in there if path.is_file()), None)
    if path is None:
        raise SystemExit(f"{folder} has no {split}.csv.gz and no {split}.txt")
    return read_text(path).split()


def known(train: list[str]) -> set[str]:
    """Canonical SMILES of the training molecules: those there, but for written hydrogens, which RDKit now leaves out."""
    return {smiles if "[H]" not in smiles else canonical(smiles) or smiles for smiles in train}


def fcd(written: list[str], train: list[str], test: list[str], count: int) -> dict[str, float]:
    """The distance of so many valid molecules to as many of the test set, and that of training ones."""
    valid = [smiles for smiles in written if canonical(smiles) is not None][:count]
    draw = random.Random(0)
    reference = chemnet_activations(draw.sample(test, min(len(valid), len(test))))
    ours, theirs = (chemnet_activations(some) for some in (valid, draw.sample(train, min(len(valid), len(train)))))
    return {
        "fcd": frechet_distance(ours, reference),
        "fcd_training": frechet_distance(theirs, reference),
        "fcd_molecules": len(valid),
    }


def _cell(figure: float | None, width: int) -> str:
    return f"{'–' if figure is None else f'{figure:g}':>{width}s}"


def table(name: str, quality: MoleculeQuality, distances: dict[str, float]) -> str:
    """Ours above, then the published ones."""
    head = f"{'':16s} {'valid':>7s} {'uniq@1k':>8s} {'uniq@10k':>9s} {'novel':>7s} {'IntDiv':>7s} {'FCD':>7s}"
    shown = f"{distances['fcd']:7.3f}" if distances else f"{'–':>7s}"
    ours = (
        f"{name:16.16s} {quality.valid:7.4f} {quality.unique_1k:8.4f} {quality.unique_10k:9.4f} {quality.novel:7.4f} "
        f"{quality.diversity:7.4f} {shown}"
    )
    lines = [head, ours]
    for baseline, (valid, unique, novel, distance) in BASELINES.items():
        lines.append(
            f"{baseline:16s} {_cell(valid, 7)} {'':8s} {_cell(unique, 9)} {_cell(novel, 7)} {'':7s} {_cell(distance, 7)}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", type=Path, required=True, help="the folder of MOSES")
    parser.add_argument("--samples", type=int, default=10_000)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--sampler")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fcd", type=int, default=10_000, help="molecules for the Fréchet ChemNet distance, at most")
    parser.add_argument("--draw", type=Path, help="a picture of the first twelve that are valid, .png")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    train, test = (molecules_of(options.data, split) for split in ("train", "test"))
    model = unnoise.load(options.model)
    sampling = {name: vars(options)[name] for name in ("steps", "sampler", "temperature", "top_p", "seed")}
    written = model.generate(options.samples, **sampling)
    if options.draw:
        draw_molecules([smiles for smiles in written if canonical(smiles)][:DRAWN], options.draw)
    quality = molecule_quality(written, known(train))
    distances = (
        fcd(written, train, test, options.fcd)
        if options.fcd > 1 and has_chemnet() and round(quality.valid * len(written)) > 1
        else {}
    )
    if options.json:
        print(json.dumps({"samples": len(written), **quality._asdict(), **distances}))
        raise SystemExit
    print(table(Path(options.model).name, quality, distances))
    lengths = sum(map(len, test)) / len(test)
    print(f"{len(written):,} strings of {quality.length:.1f} characters on average; the test molecules have {lengths:.1f}")
    if distances:
        print(
            f"FCD of {distances['fcd_molecules']:,} molecules to as many of the test set; of as many training molecules it is "
            f"{distances['fcd_training']:.3f}"
        )
    if model.sampling:
        used = ", ".join(f"{name} {value}" for name, value in model.sampling.items())
        print(f"the model recommends {used}, which holds where no other is given")
    if options.draw:
        print(f"wrote {options.draw}")

"""Recipes of published runs, and of users: each can be read, run small, planned at full size, and overridden."""

import json
import math
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import forked
import unnoise
from unnoise import registry
from unnoise.cli.main import main, parse
from unnoise.cli.train_command import TrainCommand
from unnoise.recipes import Recipe, recipe, recipes
from unnoise.training.checkpointing import read_options
from unnoise.training.run import prepare_run
from unnoise.training.training_options import RunOptions

ROOT = Path(__file__).parents[2]
TEXT = "the cat sat. a dog barked. seven birds sang. the moon rose. it was late. "
NAMES = list(recipes())
SMALL = "--size nano --length 16 --batch 2 --steps 2 --eval-windows 2"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a text and a few small images."""
    home = tmp_path_factory.mktemp("recipes")
    (home / "text.txt").write_text(TEXT * 60)
    rng = np.random.default_rng(0)
    np.savez(
        home / "images.npz", train=rng.integers(256, size=(20, 4, 2, 3), dtype=np.uint8), test=np.zeros((4, 4, 2, 3), np.uint8)
    )
    return home


@pytest.fixture(autouse=True)
def _there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("UNNOISE_CACHE", str(folder / "cache"))


def train_command(line: str) -> TrainCommand:
    command = parse(shlex.split(line))
    assert isinstance(command, TrainCommand)
    return command


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_runs(name: str, folder: Path) -> None:
    """Two steps at a small width, on made-up data, as the command line reads them."""
    data = "--data images.npz" if recipe(name).image else "--data text.txt --codec auto"
    command = train_command(f"train --recipe {name} {data} {SMALL}")
    report = prepare_run(command.options(), command.folder).run()
    assert report.steps == 2 and report.finished and command.folder == Path("runs") / name
    saved, wanted = read_options(folder / "runs" / name), recipe(name).options
    for field in (
        "method",
        "optimizer",
        "lr",
        "beta2",
        "weight_decay",
        "dropout",
        "lr_schedule",
        "warmup_steps",
        "ema_decay",
        "max_grad_norm",
    ):
        assert saved[field] == vars(wanted)[field], field
    assert (saved["batch"], saved["size"], saved["width"], saved["depth"]) == (2, "nano", None, None)
    assert unnoise.load(folder / "runs" / name).method.name == wanted.method


def test_every_recipe_is_planned_at_full_size(capsys: pytest.CaptureFixture[str]) -> None:
    millions = {"mdlm-owt": 162, "md4-owt-medium": 506, "bfn-text8": 227, "md4-cifar10": 25, "multinomial-text8": 50}
    millions |= {"md4-imagenet64": 199}
    for name in NAMES:
        assert main(["plan", "--recipe", name, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        options = recipe(name).options
        length = math.prod(recipe(name).image) if recipe(name).image else options.length
        assert found["run"] == name and found["tokens"] == options.steps * options.batch * length  # pyright: ignore
        assert found["days"] > 0 and found["memory_total"] > found["memory_total_checkpointed"] > 16 * found["parameters"]
        if name in millions:
            assert round(found["parameters"] / 1e6) == millions[name]


def test_a_recipe_says_what_it_is() -> None:
    assert len(NAMES) >= 15 and {"mdlm-owt", "md4-text8", "md4-cifar10", "multinomial-text8", "flexmdm-owt"} <= set(NAMES)
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    for name, one in recipes().items():
        assert one.title and "arXiv:" in one.paper and one.differs, name
        assert one.options.loss == "paper" and one.options.optimizer == "adamw" and one.options.steps, name
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert one.published.split(" (")[0] in row and one.paper.split("arXiv:")[1] in row, name
        assert ("not confirmed" in one.published) <= ("not confirmed" in row), name


def test_what_is_typed_wins(capsys: pytest.CaptureFixture[str]) -> None:
    full = train_command("train --recipe sedd-owt-medium --data text.txt").options()
    assert full == RunOptions(**{**vars(recipe("sedd-owt-medium").options), "data": "text.txt"})
    assert (full.width, full.steps, full.dropout) == (1024, 1_300_000, 0.1)
    changed = train_command("train --recipe=sedd-owt-medium --steps=7 --lr 0.5 --dropout 0 --compile").options()
    assert (changed.steps, changed.minutes, changed.lr, changed.dropout, changed.compile) == (7, None, 0.5, 0.0, True)
    assert train_command("train --recipe sedd-owt-medium --size small").options().width is None
    by_clock = train_command("train --recipe sedd-owt-medium --minutes 2").options()
    assert (by_clock.steps, by_clock.minutes, by_clock.warmup_steps) == (None, 2.0, None)
    assert train_command("train --recipe sedd-owt-medium --warmup_steps 3 --weight-decay 0.1").options().warmup_steps == 3
    for method in ("md4", "md4:offset=1e-4,schedule=linear"):
        assert train_command(f"train {method} --recipe md4-text8").method == "md4:offset=1e-4,schedule=linear"
    assert str(train_command("train --recipe md4-text8").folder) == "runs/md4-text8"


def test_a_run_from_a_recipe_goes_on(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = "train --recipe d3pm-text8 --out runs/on"
    assert main(shlex.split(f"{line} --data text.txt {SMALL} --json")) == 0
    assert main(shlex.split(f"{line} --resume --steps 4 --json")) == 0  # batch, width and data as they were begun with
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["steps"] == 4
    assert read_options(folder / "runs" / "on")["batch"] == 2
    assert main(shlex.split("train --out runs/on --resume --steps 5 --json")) == 0  # nor need it be named again
    assert main(shlex.split("train --recipe bfn-text8 --out runs/on --resume")) == 2
    assert "holds a run of d3pm-absorb:steps=1000,hybrid=0.01, and bfn-text8 trains bfn" in capsys.readouterr().err


OWN = """
import forked
import unnoise

recipe = unnoise.Recipe(
    title="my run",
    options=unnoise.RunOptions(method="ar", data="text.txt", codec="text8", size="nano", length=16, steps=3, batch=4),
)
"""


def test_a_recipe_of_ones_own(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "my_run.py").write_text(OWN)
    assert main(shlex.split("train --recipe my_run.py --json --eval-windows 2")) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["steps"] == 3 and report["out"] == "runs/my_run"
    assert main(shlex.split("plan --recipe my_run.py --json --gpus 1")) == 0
    assert json.loads(capsys.readouterr().out)["texts_per_update"] == 4
    (folder / "plugin.py").write_text(f"{OWN}\nunnoise.register('recipe', 'mine')(recipe)\n")
    environment = os.environ | {"UNNOISE_PLUGINS": str(folder / "plugin.py")}
    found = json.loads(forked.run(["-m", "unnoise", "ls", "--recipes", "--json"], env=environment).stdout)["recipes"]
    assert found["mine"]["title"] == "my run" and set(NAMES) <= set(found)
    with pytest.raises(ValueError, match="'mdlm-owt' is a built-in recipe"):
        registry.register("recipe", "mdlm-owt")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train --recipe mdml-owt", "unknown recipe 'mdml-owt': did you mean 'mdlm-owt'?"),
        ("train sedd-absorb --recipe mdlm-owt", "the recipe mdlm-owt trains mdlm, not sedd-absorb: leave METHOD out"),
        ("train --recipe nowhere.py", "there is no file nowhere.py"),
        ("train --recipe broken.py", "broken.py cannot be imported: ZeroDivisionError: division by zero (broken.py, line 1)"),
        ("train --recipe empty.py", "empty.py must define `recipe = unnoise.Recipe(…)`, found NoneType"),
        (
            "train --recipe mdlm-owt --data text.txt --out runs/none",
            "GPT-2's vocabulary needs vocab.json and merges.txt, or tokenizer.json, in gpt2",
        ),
        ("train --recipe mdlm-owt --out runs/none", "no corpus 'openwebtext'"),
        ("train --resume", "missing from unnoise train: METHOD, a name from unnoise ls, or --recipe"),
        (
            "train mdlm --data text.txt --minutes 1 --warmup-steps 3 --length 9 --out runs/none",
            "warmup_steps needs a run counted in steps",
        ),
        (
            "train mdlm --data text.txt --steps 1 --weight-decay 0.1 --length 9 --out runs/none",
            "weight_decay is for the optimizer adamw",
        ),
    ],
)
def test_a_mistake_is_one_sentence(line: str, words: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "broken.py").write_text("1 / 0")
    (folder / "empty.py").write_text("")
    assert main(shlex.split(line)) == 2
    captured = capsys.readouterr()
    assert words in captured.err and captured.err.count("\n") == 1 and not captured.out
    assert not (folder / "runs" / "none").exists()


def test_recipes_are_listed_without_waiting_for_torch(capsys: pytest.CaptureFixture[str]) -> None:
    script = "import sys; from unnoise.recipes import recipes; assert recipes() and 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
    assert main(["ls", "--recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(NAMES) and any(line.split()[0] == "mdlm-owt" and "≤ 23.2" in line for line in lines)


def test_python_takes_a_recipe() -> None:
    found: Any = unnoise.recipe("mdlm-owt")
    assert isinstance(found, Recipe) and found.options.batch == 512

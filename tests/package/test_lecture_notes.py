"""The page about the lecture notes: every item has a command or Python, and all of them run."""

import contextlib
import io
import os
import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

import unnoise
from unnoise.checkpoint.published.export import export
from unnoise.checkpoint.published.tokenizer_files import codec_tokenizer
from unnoise.cli.main import main
from unnoise.data import Bytes

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "lecture_notes.md"
ITEM = re.compile(r"(?:\*\*(\d+)\. |\| (\d+) \| )")  # a paragraph that begins with **12. , or a row that begins with | 12 |


@dataclass
class Item:
    """A numbered item of the page: its commands, and its blocks of Python."""

    number: int
    commands: list[str] = field(default_factory=list)
    blocks: list[str] = field(default_factory=list)


def read_page() -> tuple[list[str], list[Item]]:
    """Return the blocks of Python before the first item, and the items.

    A command for a row of a table ends with # and the number of the row.
    """
    before, items = Item(0), []
    block: list[str] | None = None
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        current = items[-1] if items else before
        if block is not None:
            if line == "```":
                current.blocks.append("\n".join(block))
                block = None
            else:
                block.append(line)
        elif line == "```python":
            block = []
        elif found := ITEM.match(line):
            items.append(Item(int(found[1] or found[2])))
        elif line.startswith("    unnoise "):
            command, _, of = line.strip().partition("  # ")
            (items[int(of) - 1] if of.strip() else current).commands.append(command.strip())
    return before.blocks, items


BEFORE, ITEMS = read_page()


def test_each_item_has_a_command_or_python() -> None:
    assert [item.number for item in ITEMS] == list(range(1, len(ITEMS) + 1))
    assert len(ITEMS) >= 104
    assert [item.number for item in ITEMS if not item.commands and not item.blocks] == []


def expected(block: str) -> list[str]:
    """Return the comments after the prints of a block, on the same line or on the next one."""
    return re.findall(r"^ *print\(.*\)(?:  |\n *)# (.*)$", block, re.MULTILINE)


def test_the_python_runs_and_prints_what_the_page_says(double: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for number, block in [(0, block) for block in BEFORE] + [(item.number, block) for item in ITEMS for block in item.blocks]:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, f"item {number}", "exec"), names)
        assert printed.getvalue().splitlines() == expected(block), f"item {number}"
    assert torch.get_default_dtype() is torch.float64


def test_the_measured_numbers_are_those_of_the_results() -> None:
    results = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\d\.\d{3} ± \d\.\d{3}", PAGE.read_text(encoding="utf-8")))
    assert len(shown) >= 10
    assert {number for number in shown if number not in results} == set()


# ---- commands -----------------------------------------------------------------------------------------------------------

TEXT = "the cat sat on the mat and the dog sat on the log while the rat ran round the hat "
NANO = "--size nano --length 48 --batch 2 --eval-windows 2"
SHORTER = (  # in commands that train
    (r" --(steps|minutes) \S+", ""),
    (r" --(size|length|batch|device-batch|width|depth|heads|eval-windows|samples|windows) \S+", ""),
    (r"multinomial:steps=\d+", "multinomial:steps=8"),
    (r"^train ddpm:", "train ddpm:steps=8,"),
    (r"^train ddpm ", "train ddpm:steps=8 "),
)
FEWER = (  # in commands that sample and measure
    (r"--windows \d+", "--windows 2"),
    (r"--samples \d+", "--samples 2"),
    (r"--num-samples \d+", "--num-samples 2"),
    (r"--steps \d+", "--steps 2"),
    (r"--calls [\d ]+\d", "--calls 2"),
    (r"--temperatures [\d. ]+\d", "--temperatures 1"),
    (r"^eval --(protocol|table)", r"eval --windows 2 --\1"),
)


TINY = {  # contrasts by their settings
    "path-estimate": "path-estimate:steps=4,draws=20",
    "subs": "subs:updates=2",
    "score-entropy": "score-entropy:updates=2",
    "scores": "scores:updates=2",
    "concrete-score": "concrete-score:levels=4",
    "last-step": "last-step:steps=4",
}


def short(command: str) -> str:
    """Return the same command for small models, without `unnoise`."""
    command = command.removeprefix("unnoise ")
    name, *_ = command.split()
    for pattern, less in SHORTER if name in ("train", "compare") else FEWER:
        command = re.sub(pattern, less, command)
    if name == "contrast":
        return f"contrast {TINY[command.split()[1]]}"
    more = {
        "train": f"--steps 2 {NANO}",
        "compare": f"--steps 2 {NANO} --windows 2 --samples 2",
        "eval": "" if "--windows" in command else "--windows 2",
        "generate": "--length 64" if "stories" in command else "",
        "plot": "--calls 2" if "frontier" in command else "",
    }
    return f"{command} {more.get(name, '')}".strip()


def write_files(folder: Path) -> None:
    """Write what the page's `path/to/…` stand for: texts, benchmarks, and models of published layouts."""
    to = folder / "path" / "to"
    (to / "sets").mkdir(parents=True)
    for name in ("text8", "enwik8", "openwebtext", "sets/wikitext2", "sets/lambada"):
        (to / name).write_text(TEXT * 60)
    shutil.copytree(ROOT / "tests" / "fixtures" / "parity" / "gpt2", to / "gpt2")
    tokenizer = codec_tokenizer(Bytes(end=True))
    assert tokenizer is not None
    tokenizer.save(str(to / "gpt2" / "tokenizer.json"))
    export(unnoise.Model.build("sedd-absorb", Bytes(end=True), 48, width=16, network="ddit"), "sedd", to / "sedd-small")


@pytest.mark.long
def test_every_command_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("UNNOISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "120")
    failed = []
    for item in ITEMS:
        for command in item.commands:
            code = main(shlex.split(short(command)))
            captured = capsys.readouterr()
            if code or not captured.out.strip() or "Traceback" in captured.err:
                failed.append((item.number, short(command), captured.err.strip().splitlines()[-1:]))
    assert not failed, os.linesep.join(map(str, failed))

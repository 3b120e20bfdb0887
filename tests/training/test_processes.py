"""Several processes write and measure as one does: the same texts and the same figures, to the bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.multiprocessing.spawn import start_processes

import unnoise
from unnoise import distributed
from unnoise.cli.main import main
from unnoise.cli.workers import free_port
from unnoise.data.texts import Sequences
from unnoise.distributed import rows_at_once
from unnoise.model import generate

LENGTH = 128
METHODS = ("mdlm", "md4", "udlm", "flexmdm", "ar")
PATIENCE = 120  # seconds


def small(method: str) -> unnoise.Model:
    """Return a model with random weights, whose predictions are not uniform."""
    model = unnoise.Model.build(method, codec="text8", length=LENGTH, width=16, depth=1, heads=2)
    with torch.no_grad():
        for weight in model.network.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(weight.numel())))
    return model


def results() -> dict[str, Any]:
    """Sample and measure with every method, in more than one part."""
    assert rows_at_once(LENGTH, generate.ROWS, torch.device("cpu")) == 16
    x = torch.randint(27, (40, LENGTH), generator=torch.Generator().manual_seed(0))
    found: dict[str, Any] = {}
    for method in METHODS:
        model = small(method)
        bits = model.bits_per_char(Sequences.from_table(x), None, draws=12, error=0.03)
        score = model.score(["the cat sat on the mat " * 20, "a dog"], samples=4)
        found[method] = {
            "texts": model.generate(40 if method != "ar" else 70, steps=5, seed=1),
            "few": model.generate(2, steps=3, seed=1),
            "filled": model.infill("the [MASK][MASK] sat", n=20, steps=2),
            "bits": (bits.bits, bits.stderr, bits.draws),
            "score": (score.nats, score.stderr, score.draws),
        }
    return found


def failing(number: int) -> int:
    if number == 3:
        raise ValueError("the third cannot be done")
    return number


def worker(number: int, world: int, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(number), "WORLD_SIZE": str(world)}
    with distributed.process_group(torch.device("cpu")):
        assert distributed.map_ranks(7, lambda i: (i, distributed.rank())) == [
            (i, rank) for rank in range(world) for i in torch.arange(7).tensor_split(world)[rank].tolist()
        ]
        assert distributed.map_ranks(1, lambda i: i) == [0] and distributed.map_ranks(0, lambda i: i) == []
        with pytest.raises(ValueError, match="the third cannot be done"):
            distributed.map_ranks(4, failing)
        (Path(folder) / f"{number}.json").write_text(json.dumps(results()))


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return results()


@pytest.mark.parametrize("world", [2, 3])
def test_any_number_of_processes_writes_and_measures_the_same(alone: dict[str, Any], world: int, tmp_path: Path) -> None:
    start_processes(worker, (world, free_port(), str(tmp_path)), world, start_method="forkserver")
    for number in range(world):
        assert json.loads((tmp_path / f"{number}.json").read_text()) == json.loads(json.dumps(alone))
    assert all(len(set(found["texts"])) > 1 and len(found["few"]) == 2 for found in alone.values())
    draws = {method: found["bits"][2] for method, found in alone.items()}
    assert draws["ar"] == 1 and any(2 < count < 12 for count in draws.values())  # stopped on the way, all at the same draw


def test_parts_do_not_depend_on_who_computes_them() -> None:
    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert [rows_at_once(tokens, 64, cpu) for tokens in (1, 32, 33, 256, 5000)] == [64, 64, 62, 8, 1]
    assert rows_at_once(256, 64, cuda) == 64


def test_the_command_line_writes_and_measures_with_workers(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    small("mdlm").save(tmp_path / "model")
    (tmp_path / "text.txt").write_text("the cat sat on the mat while a dog barked at the moon. " * 300)
    model = ["--model", str(tmp_path / "model"), "--json"]

    def said(*line: str) -> Any:
        assert main([*line, *model]) == 0
        out, err = capfd.readouterr()
        assert len(out.splitlines()) == 1 and err == ""
        return json.loads(out)

    writes = ["generate", "--num-samples", "20", "--steps", "3"]
    assert said(*writes, "--workers", "2") == said(*writes)
    measures = ["eval", "--data", str(tmp_path / "text.txt"), "--split", "train", "--windows", "40", "--samples", "8"]
    assert said(*measures, "--workers", "2", "--error", "0.03") == said(*measures, "--error", "0.03")


def test_an_interrupt_ends_all_processes_with_one_word(tmp_path: Path) -> None:
    """Also one that comes before they can answer to it."""
    small("mdlm").save(tmp_path / "model")
    line = [sys.executable, "-m", "unnoise", "generate", "--model", str(tmp_path / "model"), "--num-samples", "100000"]
    begun = subprocess.Popen(
        [*line, "--workers", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    until = time.monotonic() + PATIENCE
    while len(children(begun.pid)) < 3 and time.monotonic() < until and begun.poll() is None:  # one keeps track of the others
        time.sleep(0.05)
    started = children(begun.pid)
    os.killpg(begun.pid, signal.SIGINT)
    out, err = begun.communicate(timeout=PATIENCE)
    assert (begun.returncode, out, err) == (130, "", "unnoise: stopped\n")
    assert len(started) == 3 and not [pid for pid in started[1:] if Path(f"/proc/{pid}").exists()]


def children(pid: int) -> list[int]:
    """Return the child processes of a process, oldest first."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout
    return sorted(map(int, found.split()))

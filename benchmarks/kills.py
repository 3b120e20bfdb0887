"""Kill a run of two processes again and again, one of them or both, and see that it ends with the same losses.

    python benchmarks/kills.py --kills 10

Trains undisturbed with 1, 2 and 4 processes, with and without shards: these runs differ by the order of float additions, the
more the longer they are. Then runs are killed (SIGKILL) at random moments, a random process or the whole group, and resumed.
Resumed with the same processes, a run must have the losses of the undisturbed one to the bit; resumed each time with others, it
may differ by no more than undisturbed runs do (three times, or 1e-5). The models must load.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import unnoise

TEXT = "the cat sat on the mat while a dog barked at the moon and seven birds sang in the old tree. " * 40
SHAPE = ["--size", "nano", "--length", "16", "--batch", "8", "--eval-windows", "4", "--save-every", "3"]
WAYS = ((2, False), (2, True), (1, False), (4, True))  # processes, shards


def losses(folder: Path) -> list[float]:
    """Of all steps of a run."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line["loss_bits"] for line in lines if "loss_bits" in line]


def start(home: Path, out: str, steps: int, workers: int, shard: bool) -> subprocess.Popen[bytes]:
    """A run, in a group of processes of its own."""
    line = [sys.executable, "-m", "unnoise", "train", "mdlm", *SHAPE, "--data", "text.txt", "--out", out, "--json"]
    line += ["--steps", str(steps), "--resume", "--workers", str(workers), *(["--shard"] if shard else [])]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "UNNOISE_CACHE": str(home / "cache")}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(line, cwd=home, env=environment, start_new_session=True, **quiet)


def strike(process: subprocess.Popen[bytes], rng: random.Random) -> str:
    """Kill one process of the run, or the whole group."""
    found = subprocess.run(["pgrep", "-f", "spawn_main", "-g", str(process.pid)], capture_output=True, text=True, check=False)
    children = [int(line) for line in found.stdout.split()]
    if children and rng.random() < 0.7:
        victim = rng.choice(children)
        os.kill(victim, signal.SIGKILL)
        return f"process {children.index(victim)} of {len(children)}"
    os.killpg(process.pid, signal.SIGKILL)
    return "the whole group"


def struck(home: Path, out: str, count: int, steps: int, ways: Sequence[tuple[int, bool]], rng: random.Random) -> list[str]:
    """Start a run again and again, each time in the next way, kill it at random moments, and at last let it end."""
    said: list[str] = []
    log = home / out / "log.jsonl"
    while len(said) < count:
        workers, shard = ways[len(said) % len(ways)]
        process = start(home, out, steps, workers, shard)
        before = log.stat().st_size if log.exists() else 0
        while process.poll() is None and (log.stat().st_size if log.exists() else 0) <= before:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.6))
        if process.poll() is not None:  # it was done before it could be struck
            said.append(f"{workers} processes{', shards' * shard}: finished")
            break
        said.append(f"{workers} processes{', shards' * shard}: killed {strike(process, rng)}")
        process.wait()
    assert start(home, out, steps, *ways[0]).wait() == 0
    assert unnoise.load(home / out).generate(steps=2)
    return said


def apart(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest relative difference of two runs' losses, which must be of as many steps."""
    assert len(one) == len(other), (len(one), len(other))
    return max(abs(a / b - 1) for a, b in zip(one, other, strict=True))


def kills(home: Path, count: int, steps: int, seed: int = 0) -> list[str]:
    """What was done; AssertionError if a run does not end as it should."""
    (home / "text.txt").write_text(TEXT)
    rng = random.Random(seed)
    for out, (workers, shard) in zip(("first", *map(str, range(1, len(WAYS)))), WAYS, strict=True):
        assert start(home, out, steps, workers, shard).wait() == 0
    undisturbed = losses(home / "first")
    between = max(apart(undisturbed, losses(home / str(i))) for i in range(1, len(WAYS)))
    alike = struck(home, "alike", count // 2, steps, WAYS[:1], rng)
    assert losses(home / "alike") == undisturbed, "killed and resumed alike, a run has other losses"
    mixed = struck(home, "mixed", count - count // 2, steps, WAYS, rng)
    found = apart(undisturbed, losses(home / "mixed"))
    assert found <= max(1e-5, 3 * between), (found, between)
    return [
        *alike,
        f"all {steps} losses are those of an undisturbed run, to the bit",
        *mixed,
        f"all {steps} losses at most {found:.1e} apart; undisturbed runs with other processes are {between:.1e} apart",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--steps", type=int, default=600)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print("\n".join(kills(Path(folder), chosen.kills, chosen.steps)))

"""Kill a run of two processes again and again, one of them or both, and see that it ends with the same losses.

    python benchmarks/kills.py --kills 10

Trains once undisturbed with one process. Then with two, killed (SIGKILL) at random moments, a random process or the whole
group, and resumed each time with 1, 2 or 4 processes, with and without shards. The losses of all steps must be the same to
1e-5, and the model must load.
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


def kills(home: Path, count: int, steps: int, seed: int = 0) -> list[str]:
    """What was done; AssertionError if a run does not end as it should."""
    (home / "text.txt").write_text(TEXT)
    rng = random.Random(seed)
    assert start(home, "whole", steps, 1, False).wait() == 0
    said: list[str] = []
    while len(said) < count:
        workers, shard = WAYS[len(said) % len(WAYS)]
        process = start(home, "killed", steps, workers, shard)
        log = home / "killed" / "log.jsonl"
        before = log.stat().st_size if log.exists() else 0
        while process.poll() is None and (log.stat().st_size if log.exists() else 0) <= before:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.6))
        if process.poll() is not None:  # it was done before it could be struck
            said.append(f"{workers} processes{', shards' * shard}: finished")
            break
        said.append(f"{workers} processes{', shards' * shard}: killed {strike(process, rng)}")
        process.wait()
    assert start(home, "killed", steps, 2, False).wait() == 0
    wanted, found = losses(home / "whole"), losses(home / "killed")
    assert len(wanted) == len(found) == steps, (len(wanted), len(found))
    apart = max(abs(one / other - 1) for one, other in zip(wanted, found, strict=True))
    assert apart < 1e-5, apart
    assert unnoise.load(home / "killed").generate(steps=2)
    return [*said, f"all {steps} losses as undisturbed, at most {apart:.1e} apart"]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--steps", type=int, default=600)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print("\n".join(kills(Path(folder), chosen.kills, chosen.steps)))

"""`unnoise prepare` on a made-up corpus: memory, speed, being killed, and how soon a training on it begins.

    python benchmarks/prepare.py                                  # 2 GB of text, bytes as tokens
    python benchmarks/prepare.py --size 0.2 --codec bpe-4096

Documents of random words, most of them frequent ones, are written to a file of JSON lines. It is prepared once, then once more
by a process that is killed (SIGKILL) at random moments and started again; the shards must be the same. Memory is the sum of
what all processes have resident, libraries that they share counted for each. Needs psutil.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil

WORDS, DOCUMENT = 50_000, 2_000  # different words; characters of a document, on average
ALLOWED = 600e6  # bytes, over all processes

TRAIN = """
import sys, time
import torch
start, worked = time.perf_counter(), time.process_time()
from pathlib import Path
import psutil
from unnoise.data.corpus import corpus
from unnoise.training.training_options import RunOptions
from unnoise.training.run import prepare_run
resident = lambda: psutil.Process().memory_info().rss / 1e6
before = time.perf_counter()
corpus(sys.argv[1])
print(f"opening the folder: {1000 * (time.perf_counter() - before):.1f} ms")
options = RunOptions(method="mdlm", loss="fast", data=sys.argv[1], size="nano", length=128, steps=10)
run = prepare_run(options, Path(sys.argv[2]))
run.step()
seconds, work = time.perf_counter() - start, time.process_time() - worked
print(f"training: {seconds:.2f} s from after `import torch` to the end of the first step, {work:.2f} s of it on a core")
first = resident()
for step in range(int(sys.argv[3])):
    run.train_texts.batch(step * 8 + torch.arange(8), 0)
print(f"resident: {first:.0f} MB after the first step, {resident():.0f} MB after {int(sys.argv[3]):,} more batches were read")
"""


def write_text(path: Path, size: int) -> None:
    """Documents of random words with frequencies like 1/rank, `size` bytes in all."""
    rng = np.random.default_rng(0)
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkqjxz", dtype="S1").astype(str)
    words = np.array(["".join(rng.choice(letters, rng.integers(1, 11))) for _ in range(WORDS)], dtype=object)
    edges = np.cumsum(1 / np.arange(1, WORDS + 1))
    edges /= edges[-1]
    with open(path, "w", encoding="utf-8") as file:
        while file.tell() < size:
            drawn = words[np.searchsorted(edges, rng.random(200_000))]
            cuts = np.flatnonzero(rng.random(len(drawn)) < 6.5 / DOCUMENT)
            for part in np.split(drawn, cuts):
                file.write(json.dumps({"text": " ".join(part)}) + "\n")


def watched(process: subprocess.Popen[bytes], until: float = float("inf")) -> tuple[float, float]:
    """Wait for a process, at most so many seconds: the seconds that it took, and the most bytes resident in it and below."""
    start, most = time.monotonic(), 0.0
    root = psutil.Process(process.pid)
    while process.poll() is None and time.monotonic() - start < until:
        total = 0
        try:
            for one in (root, *root.children(recursive=True)):
                total += one.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        most = max(most, total)
        time.sleep(0.05)
    return time.monotonic() - start, most


def hashes(folder: Path) -> list[str]:
    index = json.loads((folder / "index.json").read_text())
    return [shard["hash"] + shard["table_hash"] for split in index["splits"].values() for shard in split["shards"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=float, default=2.0, help="GB of text")
    parser.add_argument("--codec", default="bytes")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--batches", type=int, default=5000, help="batches that are read after the first step")
    parser.add_argument("--folder", type=Path, default=None, help="where to put the files; default: a temporary folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        source = folder / "made-up.jsonl"
        write_text(source, int(options.size * 1e9))
        print(f"{source.stat().st_size / 1e9:.2f} GB of text, codec {options.codec}, {options.workers} workers", flush=True)
        command = [sys.executable, "-m", "unnoise", "prepare", str(source), "--codec", options.codec]
        command += ["--workers", str(options.workers)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}

        process = subprocess.Popen([*command, "--out", str(folder / "once")], **quiet)
        seconds, most = watched(process)
        assert process.returncode == 0
        splits = json.loads((folder / "once" / "index.json").read_text())["splits"]
        tokens = sum(shard["tokens"] for split in splits.values() for shard in split["shards"])
        print(
            f"prepared in {seconds:.0f} s: {tokens:,} tokens, {tokens / seconds / 1e6:.2f} million a second; "
            f"at most {most / 1e6:.0f} MB resident, over all processes",
            flush=True,
        )
        assert most < ALLOWED, f"more than {ALLOWED / 1e6:.0f} MB"

        rng, kills = random.Random(0), 0
        while True:
            process = subprocess.Popen([*command, "--out", str(folder / "killed")], **quiet)
            watched(process, rng.uniform(0.1, 0.25) * seconds if kills < options.kills else float("inf"))
            if process.poll() is not None:
                break
            process.kill()
            process.wait()
            kills += 1
        assert process.returncode == 0
        assert hashes(folder / "once") == hashes(folder / "killed"), "other shards"
        print(f"killed {kills} times and resumed: the same {len(hashes(folder / 'once'))} shards", flush=True)
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        arguments = [str(folder / "once"), str(folder / "run"), str(options.batches)]
        subprocess.run([sys.executable, "-c", TRAIN, *arguments], check=True, env=environment)


if __name__ == "__main__":
    main()

"""Tokens a second of a training step, as ratios to the step of an earlier version in the same run, taken in turns.

    python benchmarks/speed.py            # on an otherwise idle machine

The earlier step is kept here: convolution by conv1d, squared ReLU by two operations, the last block at all positions, five
Newton–Schulz iterations on whole matrices; eager, with one process and as many threads as there are cores. Beside it the
present step with threads, with processes of one thread each, and in bfloat16. Each variant lives in processes of its own,
which wait while another is measured; a figure is the median over the rounds.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time

CORES = len(os.sched_getaffinity(0))
CASES = {"tiny, batch 8 × 256": (128, 8, 6), "6 layers × 256, batch 16 × 256": (256, 16, 2)}  # width, batch, steps a round
VARIANTS = {  # name → earlier, processes, options
    f"earlier step, {CORES} threads": (True, 1, {}),
    f"{CORES} threads": (False, 1, {}),
    f"{CORES} processes": (False, CORES, {}),
    f"{CORES} threads, bfloat16": (False, 1, {"precision": "bfloat16"}),
    f"{CORES} processes, bfloat16": (False, CORES, {"precision": "bfloat16"}),
}


# ---- one process of a variant --------------------------------------------------------------------------------------------


def put_earlier_step() -> None:
    """Let the network and the optimizer compute as they did."""
    import torch
    from torch.nn import functional as F

    from unnoise.network import transformer
    from unnoise.training import optim as optimizer

    def along(self, x, padding):
        padded = F.pad(x, (0, 0, padding, padding))
        return F.conv1d(padded.transpose(1, 2), self.weight.T[:, None], groups=x.shape[-1]).transpose(1, 2)

    def orthogonal(matrix, iterations=5):
        x = matrix / (matrix.norm() + 1e-7)
        tall = x.shape[0] > x.shape[1]
        x = x.T if tall else x
        for _ in range(iterations):
            gram = x @ x.T
            x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
        return x.T if tall else x

    def rotate(x, rotation):
        cos, sin = (angle[:, None, None] for angle in rotation)
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    class RowsLast(transformer.Block):
        def forward(self, x, rotation, time, cache, visibility, *, where, dropout):
            x = super().forward(x, rotation, time, cache, visibility, where=None, dropout=dropout)
            return x if where is None else x[where]

    class TwoOperations:
        @staticmethod
        def apply(x):
            return F.relu(x).square()

    transformer.Convolution._along = along
    transformer.SquaredRelu = TwoOperations
    transformer.rotate = rotate
    transformer.Block = RowsLast
    optimizer.orthogonal = orthogonal


def worker(case: str, variant: str) -> None:
    """Take steps whenever a line comes in, and say how long they took."""
    earlier, processes, options = VARIANTS[variant]
    from unnoise.__main__ import set_wait_policy

    set_wait_policy()
    import torch

    torch.set_num_threads(CORES // processes)
    if earlier:
        put_earlier_step()
    from unnoise import distributed
    from unnoise.model.model import Model
    from unnoise.training.parallel import retained_memory
    from unnoise.training.trainer import TrainingRun
    from unnoise.training.training_options import TrainingOptions

    width, batch, steps = CASES[case]
    with distributed.process_group(torch.device("cpu")), retained_memory(torch.device("cpu")):
        model = Model.build("mdlm", "text8", length=256, width=width, heads=width // 32)
        tokens = torch.randint(27, (200_000,), generator=torch.Generator().manual_seed(0))
        run = TrainingRun(model, tokens, TrainingOptions(steps=100_000, loss="fast", batch=batch, **options))
        for _ in range(2):
            run.step()
        print("ready", flush=True)
        for _ in sys.stdin:
            start = time.perf_counter()
            for _ in range(steps):
                run.step()
            print(time.perf_counter() - start, flush=True)


# ---- all of them -----------------------------------------------------------------------------------------------------------


def start(case: str, variant: str) -> list[subprocess.Popen[str]]:
    """The processes of a variant, once they are ready."""
    count = VARIANTS[variant][1]
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    group = []
    for rank in range(count):
        where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environment = os.environ | {name: str(value) for name, value in where.items()}
        environment["OMP_NUM_THREADS"] = str(CORES // count)
        line = [sys.executable, __file__, "--worker", case, variant]
        group.append(
            subprocess.Popen(
                line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
            )
        )
    for process in group:
        assert process.stdout is not None and process.stdout.readline() == "ready\n", variant
    return group


def seconds(group: list[subprocess.Popen[str]]) -> float:
    """Of one round of a variant."""
    for process in group:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return max(float(process.stdout.readline()) for process in group if process.stdout is not None)


def measure(case: str, rounds: int) -> None:
    """Print the table of a case."""
    _, batch, steps = CASES[case]
    groups = {variant: start(case, variant) for variant in VARIANTS}
    times = [{variant: seconds(group) for variant, group in groups.items()} for _ in range(rounds)]
    for group in groups.values():
        for process in group:
            process.terminate()
    first = next(iter(VARIANTS))
    print(f"\n| {case} | tokens/s | ratio |\n|---|---|---|")
    for variant in VARIANTS:
        speed = statistics.median(steps * batch * 256 / one[variant] for one in times)
        ratio = statistics.median(one[first] / one[variant] for one in times)
        print(f"| {variant} | {speed:,.0f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        worker(*chosen.worker)
    else:
        for case in CASES:
            measure(case, chosen.rounds)

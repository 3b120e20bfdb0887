"""Training speed by the wait policy of OpenMP's threads, with the machine idle and with other programs on it.

    python benchmarks/threads.py --busy 2

Each line is a process of its own, as the policy is read when torch is loaded; tokens a second of mdlm, size tiny, batch 8,
and the ratio to torch's default on an idle machine. The command line sets GOMP_SPINCOUNT=1000 unless the environment says more.
"""

import argparse
import os
import subprocess
import sys

POLICIES = {
    "torch's default": {},
    "GOMP_SPINCOUNT=1000 (unnoise's)": {"GOMP_SPINCOUNT": "1000"},
    "OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
TRAIN = """
import time, torch, unnoise
from unnoise.training.trainer import TrainingRun
from unnoise.training.training_options import TrainingOptions
model = unnoise.Model.build("mdlm", codec="text8", length=256)
run = TrainingRun(model, torch.randint(27, (100_000,)), TrainingOptions(steps=1000, loss="fast"))
for _ in range(3):
    run.step()
start, steps = time.monotonic(), 0
while time.monotonic() - start < 8:
    run.step()
    steps += 1
print(steps * 8 * 256 / (time.monotonic() - start))
"""


def speed(policy: dict[str, str]) -> float:
    """Tokens a second under this policy."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    done = subprocess.run([sys.executable, "-c", TRAIN], env=plain | policy, capture_output=True, text=True, check=True)
    return float(done.stdout)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--busy", type=int, default=2, help="how many other programs there are in the second half")
    arguments = parser.parse_args()
    first = None
    for others in (0, arguments.busy):
        busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(others)]
        try:
            for name, policy in POLICIES.items():
                found = speed(policy)
                first = first or found
                print(f"{others} other programs  {name:32s} {found:7.0f} tokens/s  × {found / first:.2f}", flush=True)
        finally:
            for process in busy:
                process.kill()

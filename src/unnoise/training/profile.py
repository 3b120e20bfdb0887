"""Profiling of training steps with torch.profiler."""

from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from unnoise.files import write_atomically
from unnoise.training.callback import Callback, StepReport

TRACE, TABLE = "profile.json", "profile.txt"
FIRST = 5  # unprofiled steps at the start, in which caches fill


class Profiler(Callback):
    """Callback that profiles some steps and writes a trace (for chrome://tracing or Perfetto) and a table of operations."""

    def __init__(self, out: Path, steps: int):
        self.out = out
        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * torch.cuda.is_available()
        self.profile = profile(
            activities=activities,
            schedule=schedule(wait=FIRST - 1, warmup=1, active=steps, repeat=1),
            on_trace_ready=self._write,
        )
        self.profile.start()

    def on_step(self, report: StepReport) -> None:
        self.profile.step()

    def on_end(self) -> None:
        self.profile.stop()

    def _write(self, found: profile) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        found.export_chrome_trace(str(self.out / TRACE))
        table = found.key_averages().table(sort_by="self_cpu_time_total", row_limit=40)
        write_atomically(self.out / TABLE, table.encode())

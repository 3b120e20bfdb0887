"""`unnoise plan`: what a run takes, before it begins."""

import json
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from unnoise.cli.command_base import Json, at_least
from unnoise.cli.train_command import RunCommand

if TYPE_CHECKING:
    from unnoise.training.plan import Plan

GPUS = {  # name → operations a second in bf16 (dense) and in float32, GiB
    "b200": (2.25e15, 80e12, 179),
    "h200": (989e12, 67e12, 140),
    "h100": (989e12, 67e12, 80),
    "a100": (312e12, 19.5e12, 80),
    "a100-40": (312e12, 19.5e12, 40),
    "l40s": (362e12, 91.6e12, 45),
    "rtx4090": (165e12, 82.6e12, 24),
}
GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class PlanCommand(RunCommand):
    """Estimate what a run takes: weights, memory per device, traffic, arithmetic, days. Nothing is read or trained.

    Example: unnoise plan --recipe mdlm-owt --gpus 8 --gpu h100
    """

    gpus: Annotated[int, arg(help="Number of devices on all machines.")] = 8
    gpu: Annotated[str, arg(help=f"Kind of device: {', '.join(GPUS)}.")] = "h100"
    flops: Annotated[float | None, arg(help="Operations per second of each device, instead of those of --gpu.")] = None
    memory: Annotated[float | None, arg(help="Memory of each device in GiB, instead of that of --gpu.")] = None
    utilisation: Annotated[float, arg(help="Share of the device's speed that is used.")] = 0.4
    vocab: Annotated[int | None, arg(help="Tokens of the codec; default: from the recipe or the codec's name.")] = None
    as_json: Json = False

    def run(self) -> int:
        """Compute it, and print it."""
        from unnoise.training.plan import Devices, plan, vocabulary

        self._check()
        recipe = self.chosen_recipe()
        of_recipe = recipe.vocab if recipe and self.codec == recipe.options.codec else None
        bf16, float32, gib = GPUS[self.gpu]
        flops = self.flops or (float32 if self.precision == "float32" else bf16)
        found = plan(
            self.options(),
            Devices(self.gpus, flops, (self.memory or gib) * GIB, self.utilisation),
            self.vocab or of_recipe or vocabulary(self.codec),
            recipe.image if recipe else (),
        )
        name = self.recipe_name or self.method
        if self.as_json:
            typed = ("gpus", "utilisation", "precision", "shard", "checkpoint_activations")
            about = {"run": name, "flops_per_second": flops, "memory_gib": self.memory or gib}
            print(json.dumps(about | {field: vars(self)[field] for field in typed} | asdict(found), ensure_ascii=False))
            return 0
        self._show(name, found, flops, self.memory or gib)
        if recipe is not None and recipe.published:
            print(f"published: {recipe.published}; {recipe.paper}")
        return 0

    def _check(self) -> None:
        at_least(1, gpus=self.gpus, vocab=self.vocab)
        if self.gpu not in GPUS:
            raise ValueError(f"unknown GPU {self.gpu!r}: use one of {', '.join(GPUS)}, or --flops and --memory")
        if not 0 < self.utilisation <= 1:
            raise ValueError(f"--utilisation is a share, above 0 and at most 1, found {self.utilisation}")
        for name, value in (("flops", self.flops), ("memory", self.memory)):
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"--{name} must be > 0, found {value}")

    def _show(self, name: str, found: "Plan", flops: float, gib: float) -> None:
        """The plan as a table on a terminal, as plain lines elsewhere."""
        from rich.console import Console
        from rich.table import Table

        devices = f"{self.gpus} × {self.gpu if self.flops is None else f'{flops:.3g} FLOP/s'}, {gib:g} GiB"
        kind = "float32" if self.precision == "float32" else "bf16"
        title = f"{name} on {devices}, {kind}, {'sharded' if self.shard else 'replicated'}"
        console = Console()
        rows = list(self._rows(found, gib))
        if not console.is_terminal:
            print(title)
            for left, right in rows:
                print(f"{left:34s} {right}".rstrip())
            return
        table = Table(title=title, title_justify="left", show_header=False)
        for row in rows:
            table.add_row(*row)
        console.print(table)

    def _rows(self, found: "Plan", gib: float) -> list[tuple[str, str]]:
        parts = f", in {found.parts} parts of {found.device_batch}" if found.parts > 1 else ""
        rows = [
            ("parameters", f"{found.parameters:,}"),
            ("sequences per update", f"{found.texts_per_update:,}, {found.texts_per_device:,} on a device{parts}"),
            ("memory per device", ""),
            *((f"  {part}", f"{size / GIB:.2f} GiB") for part, size in found.memory.items()),
            ("  total", f"{found.memory_total / GIB:.2f} GiB{self._fit(found, gib)}"),
        ]
        if found.memory_total_checkpointed is not None and not self.checkpoint_activations:
            rows.append(("  with activations checkpointed", f"{found.memory_total_checkpointed / GIB:.2f} GiB"))
        if found.largest_device_batch is not None:
            most = f"{found.largest_device_batch:,} ({found.largest_device_batch_checkpointed:,} with activations checkpointed)"
            rows.append(("  largest device batch", most))
        if self.gpus > 1:
            rows.append(("sent by each device per step", ""))
            rows += [(f"  {kind}", f"{size / GIB:.2f} GiB") for kind, size in found.traffic.items()]
        total = sum(found.flops_per_step.values())
        rows.append(("operations per step", f"{total:.3g}"))
        rows += [(f"  {part}", f"{count:.3g}{self._head(part, found)}") for part, count in found.flops_per_step.items()]
        rows.append(("tokens per step", f"{found.tokens_per_step:,}"))
        rows.append((f"time per step at {self.utilisation:.0%} utilisation", f"{found.seconds_per_step:.3g} s"))
        if found.tokens is not None and found.days is not None:
            rows += [("tokens in total", f"{found.tokens:,}"), ("days", f"{found.days:.2f}")]
        return rows

    def _fit(self, found: "Plan", gib: float) -> str:
        if found.fits is None:
            return " plus the activations, which are known only for the Transformer"
        return "" if found.fits else f", more than the {gib:g} GiB available"

    def _head(self, part: str, found: "Plan") -> str:
        return f", evaluated at {found.head_share:.0%} of the positions" if part == "head" and found.head_share < 0.99 else ""

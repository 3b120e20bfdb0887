"""Picture of a run's training curve, drawn when the run ends."""

from pathlib import Path
from typing import TYPE_CHECKING

from unnoise.apps.plots.figures import plot_curve
from unnoise.apps.plots.style import can_draw
from unnoise.training.callbacks import Callback

if TYPE_CHECKING:
    from unnoise.training.trainer import TrainingRun


class CurvePicture(Callback):
    """Callback that writes curve.png next to the log of a run."""

    def __init__(self) -> None:
        self.folder: Path | None = None

    def before_save(self, run: "TrainingRun") -> None:
        self.folder = run.out

    def on_end(self) -> None:
        if self.folder is not None and can_draw():
            plot_curve(self.folder, self.folder / "curve.png")

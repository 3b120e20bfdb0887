"""Commands of the core with pictures: training curves, replays of chains, and noise schedules."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from unnoise.cli import eval_command, generate_command, info_command, train_command
from unnoise.cli.command_base import Dark

if TYPE_CHECKING:
    from unnoise.model.generate import Step
    from unnoise.model.model import Model
    from unnoise.training.callbacks import Callback


@dataclass(frozen=True, kw_only=True)
class TrainCommand(train_command.TrainCommand):
    __doc__ = train_command.TrainCommand.__doc__

    def callbacks(self) -> "list[Callback]":
        from unnoise.apps.plots.curve_picture import CurvePicture

        return [*super().callbacks(), CurvePicture()]


@dataclass(frozen=True, kw_only=True)
class CompareCommand(eval_command.CompareCommand):
    __doc__ = eval_command.CompareCommand.__doc__

    def callbacks(self) -> "list[Callback]":
        from unnoise.apps.plots.curve_picture import CurvePicture

        return [*super().callbacks(), CurvePicture()]

    def draw(self) -> Path | None:
        from unnoise.apps.plots.figures import plot_comparison
        from unnoise.apps.plots.style import can_draw

        if not can_draw():
            return None
        picture = self.out / "comparison.png"
        plot_comparison({name: self.out / name for name in self.methods}, picture)
        return picture


@dataclass(frozen=True, kw_only=True)
class GenerateCommand(generate_command.GenerateCommand):
    __doc__ = generate_command.GenerateCommand.__doc__

    replay: Annotated[Path | None, arg(help="Write the denoising chain as an animated HTML page.")] = None

    def single_model_options(self) -> list[str]:
        return [*super().single_model_options(), *(["--replay"] if self.replay else [])]

    @property
    def keeps_chain(self) -> bool:
        return self.replay is not None

    def _write(self, device: str) -> "tuple[Model, list[Step], Any]":
        from unnoise.files import check_writable

        if self.replay is not None:
            check_writable(self.replay, (".html",))
        return super()._write(device)

    def _finish(self, found: "tuple[Model, list[Step], Any]") -> int:
        from unnoise.apps.plots.chain import write_replay

        model, steps, _ = found
        if self.replay is not None:
            kind = "an image" if model.codec.grid else "a text"
            write_replay(self.replay, steps, f"{model.method.name}: {kind} from noise, seed {self.seed}")
            print(f"wrote {self.replay}", file=sys.stderr)
        return super()._finish(found)


@dataclass
class InfoCommand(info_command.InfoCommand):
    __doc__ = info_command.InfoCommand.__doc__

    picture: Annotated[Path | None, arg(help="Draw the noise schedule to this file, .png or .svg.")] = None
    dark: Dark = False

    def run(self) -> int:
        if self.dark and self.picture is None:
            raise ValueError("--dark is for a picture: give --picture too")
        return super().run()

    @property
    def needs_weights(self) -> bool:
        return self.schedule or self.picture is not None

    def draw(self, model: "Model") -> None:
        if self.picture is not None:
            from unnoise.apps.plots.schedules import plot_schedule

            plot_schedule(model, self.picture, dark=self.dark)
            print(f"wrote {self.picture}", file=sys.stderr)

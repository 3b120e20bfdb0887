"""`unnoise train`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from unnoise.command.base import Device, Quiet


@dataclass
class Train:
    """Train a model.

    Example: unnoise train mdlm --data sotu --out runs/first --minutes 3
    """

    method: Annotated[Positional[str], arg(metavar="METHOD", help="A name from `unnoise ls`.")]
    data: Annotated[
        str,
        arg(
            help="sotu, text8, enwik8, digits, a text file, a folder (train, valid and test, or text files), or images in .npz."
        ),
    ] = "sotu"
    out: Annotated[Path | None, arg(help="Folder to write; default: runs/METHOD-DATA.")] = None
    steps: Annotated[int | None, arg(help="Train for so many steps …")] = None
    minutes: Annotated[float | None, arg(help="… or for so many minutes (3, if neither is given).")] = None
    size: Annotated[str, arg(help="nano, tiny, small or base.")] = "tiny"
    width: Annotated[int | None, arg(help="Override the size's width.")] = None
    depth: Annotated[int | None, arg(help="Override the size's number of layers.")] = None
    heads: Annotated[int | None, arg(help="Override the size's number of heads.")] = None
    length: Annotated[int, arg(help="Tokens of a text.")] = 256
    codec: Annotated[str, arg(help="auto, text8, bytes, chars, bpe, bpe-4096, or gpt2:FOLDER.")] = "auto"
    loss: Annotated[str, arg(help="quick (the method's fast start, where it has one) or paper (what the paper trains).")] = (
        "quick"
    )
    batch: Annotated[int, arg(help="Texts in a batch.")] = 8
    accumulate: Annotated[int, arg(help="Batches to an update.")] = 1
    matrix_lr: Annotated[float, arg(help="Learning rate of Muon, for matrices.")] = 0.02
    other_lr: Annotated[float, arg(help="Learning rate of Adam, for the rest.")] = 0.003
    warmup: Annotated[float, arg(help="Share of the run over which the learning rates rise.")] = 0.02
    cooldown: Annotated[float, arg(help="Share of the run over which they fall to zero.")] = 1.0
    clip: Annotated[float, arg(help="Largest norm of the gradient.")] = 1.0
    ema: Annotated[float, arg(help="Decay of the averaged weights; 0 keeps none.")] = 0.0
    eval_every: Annotated[int | None, arg(help="Steps between evaluations; default: a tenth of the run.")] = None
    eval_windows: Annotated[int, arg(help="Held-out texts in an evaluation.")] = 128
    save_every: Annotated[int, arg(help="Steps between checkpoints.")] = 200
    resume: Annotated[bool, arg(help="Go on from the run in --out.")] = False
    compile: Annotated[bool, arg(help="torch.compile the network: slow to start, then faster.")] = False
    seed: int = 0
    device: Device = "auto"
    quiet: Quiet = False

    def run(self) -> int:
        """Train, and say what came of it."""
        from unnoise.training_command import train_command

        return train_command(self)

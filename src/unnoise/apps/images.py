"""`unnoise inpaint`: complete images, given one half of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tyro.conf import arg

from unnoise.cli.command_base import at_least, open_model
from unnoise.cli.generate_command import OneModelCommand, write_sheet

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True, kw_only=True)
class InpaintCommand(OneModelCommand):
    """Complete images of which one half is given. Each row of the output: the original, the given half, the samples.

    Example: unnoise inpaint --model runs/digits --data digits --given lower --images 8 --out inpainting.png
    """

    data: Annotated[str, arg(help="Data, as for train.")] = "digits"
    split: Annotated[str, arg(help="train, valid or test.")] = "test"
    given: Annotated[str, arg(help="Given half: upper, lower, left or right.")] = "lower"
    images: Annotated[int, arg(help="Number of images.")] = 8
    out: Annotated[Path, arg(help="Output file, .png.")] = Path("inpainting.png")

    def run(self) -> int:
        import numpy as np

        from unnoise.data.codec_names import Pixels
        from unnoise.data.corpus import corpus
        from unnoise.files import check_writable

        at_least(1, images=self.images)
        check_writable(self.out, (".png",))
        model = open_model(self.model, self.device)
        if not isinstance(model.codec, Pixels):
            raise ValueError("this is a model of text: use infill")
        known = half(model.codec.shape, self.given)
        rows = []
        for tokens in corpus(self.data).texts(model.codec, self.split, model.length).windows(self.images).numpy():
            picture = model.codec.decode_image(tokens)
            shown = np.where(known, picture, 128).astype(np.uint8)
            rows += [picture, shown, *model.draw(self.num_samples, picture, known, **self.options())]
        self.say_recommended(model)
        return write_sheet(np.stack(rows), self.out, self.as_json, columns=2 + self.num_samples)


def half(shape: Sequence[int], which: str) -> "np.ndarray":
    """Return a mask of the upper, lower, left or right half of an image: bool of its shape."""
    import numpy as np

    rows, columns = shape[0] // 2, shape[1] // 2
    halves = {"upper": np.s_[:rows], "lower": np.s_[rows:], "left": np.s_[:, :columns], "right": np.s_[:, columns:]}
    if which not in halves:
        raise ValueError(f"--given must be upper, lower, left or right, found {which!r}")
    known = np.zeros(tuple(shape), dtype=bool)
    known[halves[which]] = True
    return known

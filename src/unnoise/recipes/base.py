"""What a recipe is: the options of a run, and what is known of it."""

from dataclasses import dataclass

from unnoise.training.options import RunOptions

NO_CLIPPING = 1e9  # larger than the norm of any gradient
EPSILON = "1e-4"  # of the noise schedules in MD4's code


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A run that is asked for by its name, `unnoise train --recipe NAME`.

    title: what it is, in one line. options: everything that `unnoise train` can be told. paper: where it was published.
    published: the figure that was published. differs: what is different here. vocab: how many tokens the codec has, where its
    name does not tell. image: the shape of the images, where there are any. The last two are for `unnoise plan`, which reads no
    data.
    """

    title: str
    options: RunOptions
    paper: str = ""
    published: str = ""
    differs: str = ""
    vocab: int | None = None
    image: tuple[int, ...] = ()

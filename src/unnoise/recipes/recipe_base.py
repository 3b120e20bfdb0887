"""The `Recipe` dataclass and options that several published runs share."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from unnoise.training.training_options import RunOptions

NO_CLIPPING = 1e9  # larger than the norm of any gradient
EPSILON = "1e-4"  # of the noise schedules in MD4's code


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """A named run for `unnoise train --recipe NAME`.

    title: one-line description.
    options: options of `unnoise train`.
    paper: source of the run.
    published: the published result.
    differs: differences from the published run.
    vocab: vocabulary size, if the name of the codec does not determine it; used by `unnoise plan`, which loads no data.
    image: shape of the images, if there are any; used by `unnoise plan`.
    """

    title: str
    options: RunOptions
    paper: str = ""
    published: str = ""
    differs: str = ""
    vocab: int | None = None
    image: tuple[int, ...] = ()

    def variant(self, *, options: Mapping[str, Any], **fields: Any) -> "Recipe":
        """Return this recipe with some options and fields changed."""
        return replace(self, options=replace(self.options, **options), **fields)


PUBLISHED_RUN = RunOptions(
    method="mdlm",
    data="text8",
    size="base",
    steps=1_000_000,
    loss="paper",
    optimizer="adamw",
    eval_every=10_000,
    save_every=5000,
)
"""Options of all recipes; each sets its own method."""

TEXT8_RUN = replace(PUBLISHED_RUN, data="text8", codec="text8", length=256)
OPENWEBTEXT_RUN = replace(PUBLISHED_RUN, data="openwebtext", codec="gpt2:gpt2", length=1024)

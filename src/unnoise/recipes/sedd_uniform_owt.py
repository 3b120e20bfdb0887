"""SEDD with uniform noise on OpenWebText: arXiv:2310.16834, from the command of its repository.

The noise is geometric, σ from 1e-4 to 20, and the output is not scaled (`model.scale_by_sigma=False`).
"""

from dataclasses import replace

from unnoise.recipes import sedd_owt

recipe = replace(
    sedd_owt.recipe,
    title="SEDD with uniform noise on OpenWebText, small: 12 layers of 768",
    published="",
    options=replace(sedd_owt.recipe.options, method="sedd-uniform:schedule=geometric,scaled=false"),
)

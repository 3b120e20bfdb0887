"""SEDD with uniform noise on OpenWebText, medium: a larger network."""

from dataclasses import replace

from unnoise.recipes import sedd_uniform_owt

recipe = replace(
    sedd_uniform_owt.recipe,
    title="SEDD with uniform noise on OpenWebText, medium: 24 layers of 1024",
    options=replace(sedd_uniform_owt.recipe.options, width=1024, depth=24, heads=16),
)

"""SEDD with absorbing noise on OpenWebText, medium: a larger network."""

from dataclasses import replace

from unnoise.recipes import sedd_owt

recipe = replace(
    sedd_owt.recipe,
    title="SEDD on OpenWebText, medium: 24 layers of 1024",
    published="",
    options=replace(sedd_owt.recipe.options, width=1024, depth=24, heads=16),
)

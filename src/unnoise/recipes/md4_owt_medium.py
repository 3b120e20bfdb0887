"""MD4 on OpenWebText, medium: a larger network, the cosine schedule, no dropout."""

from dataclasses import replace

from unnoise.published_tables import reported
from unnoise.recipes import md4_owt
from unnoise.recipes.base import EPSILON

recipe = replace(
    md4_owt.recipe,
    title="MD4 on OpenWebText, medium: 24 layers of 1024",
    published=reported("openwebtext", "MD4", "openwebtext", "Medium"),
    options=replace(
        md4_owt.recipe.options, method=f"md4:offset={EPSILON},schedule=cosine", width=1024, depth=24, heads=16, dropout=0.0
    ),
)

"""MD4 on OpenWebText, medium: a larger network, the cosine schedule, no dropout."""

from unnoise.published_tables import reported
from unnoise.recipes.base import EPSILON
from unnoise.recipes.md4_owt import md4_owt

md4_owt_medium = md4_owt.variant(
    title="MD4 on OpenWebText, medium: 24 layers of 1024",
    published=reported("openwebtext", "MD4", "openwebtext", "Medium"),
    options={"method": f"md4:offset={EPSILON},schedule=cosine", "width": 1024, "depth": 24, "heads": 16, "dropout": 0.0},
)

"""GenMD4 on text8: MD4's run with a learned schedule for each token, at a lower learning rate."""

from dataclasses import replace

from unnoise.published_tables import reported
from unnoise.recipes import md4_text8

recipe = replace(
    md4_text8.recipe,
    title="GenMD4 on text8, 12 layers of 768",
    published=reported("text8", "GenMD4", "text8"),
    differs=f"{md4_text8.recipe.differs}; the learned exponents do not decay",
    options=replace(md4_text8.recipe.options, method="genmd4", lr=3e-4, process_lr=3e-4),
)

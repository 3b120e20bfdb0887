"""GenMD4 on OpenWebText, small: MD4's run there with a learned schedule for each token."""

from dataclasses import replace

from unnoise.published_tables import reported
from unnoise.recipes import genmd4_text8, md4_owt

recipe = replace(
    md4_owt.recipe,
    title="GenMD4 on OpenWebText, small: 12 layers of 768",
    published=reported("openwebtext", "GenMD4", "openwebtext"),
    differs=genmd4_text8.recipe.differs,
    options=replace(md4_owt.recipe.options, method="genmd4", process_lr=3e-4),
)

"""GenMD4 on OpenWebText, small: MD4's run there with a learned schedule for each token."""

from unnoise.published_tables import reported
from unnoise.recipes.genmd4_text8 import genmd4_text8
from unnoise.recipes.md4_owt import md4_owt

genmd4_owt = md4_owt.variant(
    title="GenMD4 on OpenWebText, small: 12 layers of 768",
    published=reported("openwebtext", "GenMD4", "openwebtext"),
    differs=genmd4_text8.differs,
    options={"method": "genmd4", "process_lr": 3e-4},
)

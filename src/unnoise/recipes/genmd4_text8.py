"""GenMD4 on text8: MD4's run with a learned schedule for each token, at a lower learning rate."""

from unnoise.published_tables import reported
from unnoise.recipes.md4_text8 import md4_text8

genmd4_text8 = md4_text8.variant(
    title="GenMD4 on text8, 12 layers of 768",
    published=reported("text8", "GenMD4", "text8"),
    differs=f"{md4_text8.differs}; the learned exponents do not decay",
    options={"method": "genmd4", "lr": 3e-4, "process_lr": 3e-4},
)

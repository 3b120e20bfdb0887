"""MD4 on OpenWebText, small: MD4's run on text8 with GPT-2's tokens, texts of 1,024, and less dropout."""

from unnoise.published_tables import reported
from unnoise.recipes.md4_text8 import md4_text8

md4_owt = md4_text8.variant(
    title="MD4 on OpenWebText, small: 12 layers of 768",
    published=reported("openwebtext", "MD4", "openwebtext", "Small"),
    vocab=50_257,
    options={"data": "openwebtext", "codec": "gpt2:gpt2", "length": 1024, "lr": 3e-4, "dropout": 0.02},
)

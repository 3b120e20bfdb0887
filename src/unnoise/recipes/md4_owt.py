"""MD4 on OpenWebText, small: MD4's run on text8 with GPT-2's tokens, texts of 1,024, and less dropout."""

from dataclasses import replace

from unnoise.published_tables import reported
from unnoise.recipes import md4_text8

recipe = replace(
    md4_text8.recipe,
    title="MD4 on OpenWebText, small: 12 layers of 768",
    published=reported("openwebtext", "MD4", "openwebtext", "Small"),
    vocab=50_257,
    options=replace(md4_text8.recipe.options, data="openwebtext", codec="gpt2:gpt2", length=1024, lr=3e-4, dropout=0.02),
)

"""Multinomial Diffusion on enwik8: 4,000 steps of noise on bytes, texts of 320; an epoch has 281,250 of them."""

from unnoise.published_tables import reported
from unnoise.recipes.multinomial_text8 import EPOCHS, multinomial_text8

multinomial_enwik8 = multinomial_text8.variant(
    title="Multinomial Diffusion on enwik8, 12 layers of 512, T = 4000",
    published=reported("compression", "Multinomial Text Diffusion", "enwik8"),
    options={
        "method": "multinomial:steps=4000,importance=true",
        "data": "enwik8",
        "codec": "bytes",
        "length": 320,
        "steps": EPOCHS * 8790,
        "eval_every": 8790,
        "save_every": 8790,
    },
)

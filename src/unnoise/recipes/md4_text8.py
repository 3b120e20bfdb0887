"""MD4 on text8: arXiv:2406.04329, from the configuration of its repository, with the values of its sweep."""

from dataclasses import replace

from unnoise.published_tables import reported
from unnoise.recipes.base import EPSILON, NO_CLIPPING, TEXT8_RUN, Recipe

STEPS, WARMUP = 1_000_000, 2000

md4_text8 = Recipe(
    title="MD4 on text8, 12 layers of 768",
    paper="Shi et al. 2024, arXiv:2406.04329",
    published=reported("text8", "MD4", "text8"),
    differs="our Transformer in place of gated perceptrons with adaLN-zero; dropout of single features, not of whole channels, "
    "and none of attention weights",
    options=replace(
        TEXT8_RUN,
        method=f"md4:offset={EPSILON},schedule=linear",
        batch=512,
        steps=STEPS,
        lr=5e-4,
        beta2=0.999,
        weight_decay=0.03,
        weight_decay_on="all",
        warmup_steps=WARMUP,
        cooldown=1 - WARMUP / STEPS,
        lr_schedule="cosine",
        dropout=0.05,
        max_grad_norm=NO_CLIPPING,
        ema_decay=0.9999,
    ),
)

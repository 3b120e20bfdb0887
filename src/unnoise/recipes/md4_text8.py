"""MD4 on text8: arXiv:2406.04329, from the configuration of its repository, with the values of its sweep."""

from unnoise.published_tables import reported
from unnoise.recipes.base import EPSILON, NO_CLIPPING, Recipe
from unnoise.training.options import RunOptions

STEPS, WARMUP = 1_000_000, 2000

recipe = Recipe(
    title="MD4 on text8, 12 layers of 768",
    paper="Shi et al. 2024, arXiv:2406.04329",
    published=reported("text8", "MD4", "text8"),
    differs="our Transformer in place of gated perceptrons with adaLN-zero; dropout of single features, not of whole channels, "
    "and none of attention weights",
    options=RunOptions(
        method=f"md4:offset={EPSILON},schedule=linear",
        data="text8",
        codec="text8",
        length=256,
        size="base",
        loss="paper",
        batch=512,
        steps=STEPS,
        optimizer="adamw",
        lr=5e-4,
        beta2=0.999,
        weight_decay=0.03,
        weight_decay_on="all",
        warmup_steps=WARMUP,
        cooldown=1 - WARMUP / STEPS,
        decay="cosine",
        dropout=0.05,
        clip=NO_CLIPPING,
        ema=0.9999,
        eval_every=10_000,
        save_every=5000,
    ),
)

"""Flex-MDM on OpenWebText: arXiv:2509.01025, from the configuration of its repository.

Some versions of that configuration have 500,000 steps in place of 1,000,000, and a cosine schedule of insertion.
"""

from dataclasses import replace

from unnoise.recipes.base import NO_CLIPPING, OPENWEBTEXT_RUN, Recipe

STEPS, WARMUP = 1_000_000, 2000

flexmdm_owt = Recipe(
    title="Flex-MDM on OpenWebText, 12 layers of 768, texts of at most 1,024 tokens",
    paper="Kim et al. 2025, arXiv:2509.01025",
    differs="our Transformer in place of a DDiT; one cosine in place of ten with restarts; one stream of text is cut into "
    "sentences",
    vocab=50_257,
    options=replace(
        OPENWEBTEXT_RUN,
        method="flexmdm",
        batch=1024,
        steps=STEPS,
        lr=3e-4,
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

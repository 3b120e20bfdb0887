"""MD4 on CIFAR-10: arXiv:2406.04329, from the configuration of its repository for the best likelihood.

The published network is convolutional, 32 layers of 128 features with attention in the middle. A Transformer over 3,072
channels of pixels is another network: 24 layers of width 256 have about as many weights as the published 28 million.
"""

from dataclasses import replace

from unnoise.published_tables import reported
from unnoise.recipes.base import EPSILON, NO_CLIPPING, PUBLISHED_RUN, Recipe

STEPS, WARMUP = 2_000_000, 100

md4_cifar10 = Recipe(
    title="MD4 on CIFAR-10, 256 levels, bits per dimension",
    paper="Shi et al. 2024, arXiv:2406.04329",
    published=reported("images", "MD4", "cifar10"),
    differs="our Transformer, 24 layers of 256 over 3,072 positions, in place of a convolutional network of 32 layers",
    vocab=256,
    image=(32, 32, 3),
    options=replace(
        PUBLISHED_RUN,
        method=f"md4:offset={EPSILON},schedule=linear",
        data="cifar10.npz",
        length=3072,
        width=256,
        depth=24,
        heads=4,
        batch=256,
        steps=STEPS,
        lr=2e-4,
        beta2=0.99,
        weight_decay=0.01,
        weight_decay_on="all",
        warmup_steps=WARMUP,
        cooldown=1 - WARMUP / STEPS,
        lr_schedule="cosine",
        dropout=0.1,
        max_grad_norm=NO_CLIPPING,
        ema_decay=0.9999,
    ),
)

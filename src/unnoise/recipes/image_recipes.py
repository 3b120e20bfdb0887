"""Runs on images: MD4 on CIFAR-10 and on ImageNet downsampled to 64 × 64.

The published networks are convolutional with attention: 32 layers of 128 features for CIFAR-10, 198 million weights for
ImageNet. Our Transformers, 24 layers of width 256 and 21 of width 768, have about as many weights. A sequence is one image
of 3,072 or 12,288 values (pixels × channels), each with 256 levels.
"""

from dataclasses import replace

from unnoise.published_tables import reported
from unnoise.recipes import EPSILON, NO_CLIPPING, PUBLISHED_RUN, Recipe

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

md4_imagenet64 = md4_cifar10.variant(
    title="MD4 on ImageNet 64 × 64, 256 levels, bits per dimension",
    published=reported("images", "MD4", "imagenet64"),
    differs="our Transformer, 21 layers of 768 over 12,288 positions, in place of a convolutional network; batch, steps, rate "
    "and dropout are not confirmed",
    image=(64, 64, 3),
    options={"data": "imagenet64.npz", "length": 12_288, "width": 768, "depth": 21, "heads": 12, "batch": 512, "dropout": 0.0},
)

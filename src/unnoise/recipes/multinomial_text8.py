"""Multinomial Diffusion on text8: arXiv:2102.05379, from the command of its repository.

1,000 epochs of 351,562 texts in batches of 32; the learning rate is multiplied by 0.99 after each.
"""

from unnoise.recipes.base import NO_CLIPPING, Recipe
from unnoise.training.options import RunOptions

EPOCHS = 1000

recipe = Recipe(
    title="Multinomial Diffusion on text8, 12 layers of 512, T = 1000",
    paper="Hoogeboom et al. 2021, arXiv:2102.05379",
    published="≤ 1.72 bits per character (test)",
    differs="our Transformer, where half of the 16 heads were local ones; texts from anywhere in the stream",
    options=RunOptions(
        method="multinomial:steps=1000,importance=true",
        data="text8",
        codec="text8",
        length=256,
        size="base",
        width=512,
        heads=16,
        loss="paper",
        batch=32,
        steps=EPOCHS * 10_987,
        optimizer="adamw",
        lr=1e-4,
        beta2=0.999,
        warmup=0.0,
        decay="exponential",
        decay_to=0.99**EPOCHS,
        clip=NO_CLIPPING,
        eval_every=10_987,
        save_every=10_987,
    ),
)

"""Multinomial Diffusion on text8: arXiv:2102.05379, from the command of its repository, with the 8 heads of the paper.

1,000 epochs of 351,562 texts in batches of 32; the learning rate is multiplied by 0.99 after each.
"""

from unnoise.published_tables import reported
from unnoise.recipes.base import NO_CLIPPING, Recipe
from unnoise.training.options import RunOptions

EPOCHS = 1000

recipe = Recipe(
    title="Multinomial Diffusion on text8, 12 layers of 512, T = 1000",
    paper="Hoogeboom et al. 2021, arXiv:2102.05379",
    published=reported("compression", "Multinomial Text Diffusion", "text8"),
    differs="our Transformer; 8 heads as in the paper, where the command of its repository has 16, half of them local; texts "
    "from anywhere in the stream",
    options=RunOptions(
        method="multinomial:steps=1000,importance=true",
        data="text8",
        codec="text8",
        length=256,
        size="base",
        width=512,
        heads=8,
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

"""Multinomial Diffusion on text8: arXiv:2102.05379, from the command of its repository, with the 8 heads of the paper.

1,000 epochs of 351,562 texts in batches of 32; the learning rate is multiplied by 0.99 after each.
"""

from dataclasses import replace

from unnoise.published_tables import reported
from unnoise.recipes.base import NO_CLIPPING, TEXT8_RUN, Recipe

EPOCHS = 1000

multinomial_text8 = Recipe(
    title="Multinomial Diffusion on text8, 12 layers of 512, T = 1000",
    paper="Hoogeboom et al. 2021, arXiv:2102.05379",
    published=reported("compression", "Multinomial Text Diffusion", "text8"),
    differs="our Transformer; 8 heads as in the paper, where the command of its repository has 16, half of them local; texts "
    "from anywhere in the stream",
    options=replace(
        TEXT8_RUN,
        method="multinomial:steps=1000,importance=true",
        width=512,
        heads=8,
        batch=32,
        steps=EPOCHS * 10_987,
        lr=1e-4,
        beta2=0.999,
        warmup=0.0,
        lr_schedule="exponential",
        decay_to=0.99**EPOCHS,
        max_grad_norm=NO_CLIPPING,
        eval_every=10_987,
        save_every=10_987,
    ),
)

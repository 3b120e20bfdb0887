"""Bayesian flow network on text8: arXiv:2308.07037, from the configuration of its repository; 8 devices with 416 texts each.

The paper gives β(1) = 0.75, which is used here; the repository has √β(1) = 0.75. The number of steps is not confirmed: the
configuration has 10,000,000 as the most.
"""

from dataclasses import replace

from unnoise.published_tables import reported
from unnoise.recipes.base import TEXT8_RUN, Recipe

bfn_text8 = Recipe(
    title="Bayesian flow network on text8, 24 layers of 768",
    paper="Graves et al. 2023, arXiv:2308.07037",
    published=reported("text8", "BFN", "text8"),
    differs="our Transformer; its input is not given to the last layer once more; the bound has the reconstruction term, which "
    "the paper leaves out in training; the number of steps is not confirmed",
    options=replace(
        TEXT8_RUN,
        method="bfn:accuracy=0.75,likelihood=false",
        depth=24,
        batch=8 * 416,
        steps=1_200_000,  # not confirmed
        lr=1e-4,
        beta2=0.98,
        weight_decay=0.01,
        warmup=0.0,
        lr_schedule="constant",
        max_grad_norm=5.0,
        ema_decay=0.9999,
    ),
)

"""D3PM with absorbing noise on text8: arXiv:2107.03006, appendix B.2; β₂ and clipping from its released code."""

from dataclasses import replace

from unnoise.published_tables import reported
from unnoise.recipes.base import TEXT8_RUN, Recipe

d3pm_text8 = Recipe(
    title="D3PM with absorbing noise on text8, 12 layers of 768, T = 1000",
    paper="Austin et al. 2021, arXiv:2107.03006",
    published=reported("text8", "D3PM Absorb", "text8"),
    differs="our Transformer in place of T5's encoder",
    options=replace(
        TEXT8_RUN,
        method="d3pm-absorb:steps=1000,hybrid=0.01",
        batch=512,
        lr=5e-4,
        beta2=0.999,
        warmup_steps=10_000,
        lr_schedule="inverse-sqrt",
        max_grad_norm=0.25,
    ),
)

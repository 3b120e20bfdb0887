"""D3PM with absorbing noise on text8: arXiv:2107.03006, appendix B.2; β₂ and clipping from its released code."""

from unnoise.published_tables import reported
from unnoise.recipes.base import Recipe
from unnoise.training.options import RunOptions

recipe = Recipe(
    title="D3PM with absorbing noise on text8, 12 layers of 768, T = 1000",
    paper="Austin et al. 2021, arXiv:2107.03006",
    published=reported("text8", "D3PM Absorb", "text8"),
    differs="our Transformer in place of T5's encoder",
    options=RunOptions(
        method="d3pm-absorb:steps=1000,hybrid=0.01",
        data="text8",
        codec="text8",
        length=256,
        size="base",
        loss="paper",
        batch=512,
        steps=1_000_000,
        optimizer="adamw",
        lr=5e-4,
        beta2=0.999,
        warmup_steps=10_000,
        decay="inverse-sqrt",
        clip=0.25,
        eval_every=10_000,
        save_every=5000,
    ),
)

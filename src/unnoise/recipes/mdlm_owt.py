"""MDLM on OpenWebText: arXiv:2406.07524, from the configuration and scripts of its repository."""

from unnoise.recipes.base import Recipe
from unnoise.training.options import RunOptions

recipe = Recipe(
    title="MDLM on OpenWebText, 12 layers of 768",
    paper="Sahoo et al. 2024, arXiv:2406.07524",
    published="perplexity ≤ 23.2 (validation)",
    differs="our Transformer in place of a DDiT; t from all of [0, 1] and the bound's boundary terms, where the paper has t ≥ "
    "1e-3 and none",
    vocab=50_257,
    options=RunOptions(
        method="mdlm",
        data="openwebtext",
        codec="gpt2:gpt2",
        length=1024,
        size="base",
        loss="paper",
        batch=512,
        steps=1_000_000,
        optimizer="adamw",
        lr=3e-4,
        beta2=0.999,
        warmup_steps=2500,
        decay="constant",
        dropout=0.1,
        clip=1.0,
        ema=0.9999,
        eval_every=10_000,
        save_every=5000,
    ),
)

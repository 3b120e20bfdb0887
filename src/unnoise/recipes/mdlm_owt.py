"""MDLM on OpenWebText: arXiv:2406.07524, from the configuration and scripts of its repository."""

from dataclasses import replace

from unnoise.recipes.base import OPENWEBTEXT_RUN, Recipe

mdlm_owt = Recipe(
    title="MDLM on OpenWebText, 12 layers of 768",
    paper="Sahoo et al. 2024, arXiv:2406.07524",
    published="perplexity ≤ 23.2 (validation)",
    differs="our Transformer in place of a DDiT; t from all of [0, 1] and the bound's boundary terms, where the paper has t ≥ "
    "1e-3 and none",
    vocab=50_257,
    options=replace(
        OPENWEBTEXT_RUN,
        method="mdlm",
        batch=512,
        lr=3e-4,
        beta2=0.999,
        warmup_steps=2500,
        lr_schedule="constant",
        dropout=0.1,
        max_grad_norm=1.0,
        ema_decay=0.9999,
    ),
)

"""Plaid on OpenWebText2, the small setting that its training script has as defaults: arXiv:2305.18619.

The script's learning rate of 1.4e-3 is for width 256; its μP makes it 256/384 of that for the matrices of width 384. Its weight
decay of 4e-5 is what a step takes away at the full rate, so AdamW's is that over the learning rate.
"""

from dataclasses import replace

from unnoise.recipes.base import PUBLISHED_RUN, Recipe

STEPS, WARMUP, RATE = 92_000, 2500, 1.4e-3 * 256 / 384

plaid_owt2 = Recipe(
    title="Plaid on OpenWebText2, 16 layers of 384",
    paper="Gulrajani and Hashimoto 2023, arXiv:2305.18619",
    differs="our Transformer without μP; the gradient is clipped at 1, not at the 95th percentile of its norms; γ begins at "
    "−4, not −3; byte-level BPE of 32,768 tokens trained on the data (that size is not confirmed); no short sequences "
    "among the long ones",
    options=replace(
        PUBLISHED_RUN,
        method="gaussian:width=16,learned=true,self_condition=true",
        data="openwebtext2",
        codec="bpe-32768",
        length=256,
        width=384,
        depth=16,
        heads=6,
        batch=256,
        steps=STEPS,
        lr=RATE,
        process_lr=1e-2,
        beta2=0.99,
        weight_decay=4e-5 / RATE,
        weight_decay_on="all",
        warmup_steps=WARMUP,
        cooldown=1 - WARMUP / STEPS,
    ),
)

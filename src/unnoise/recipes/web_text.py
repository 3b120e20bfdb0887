"""Runs on web text: MDLM, SEDD, MD4, GenMD4, Plaid and Flex-MDM on OpenWebText, and MDLM on the One Billion Word benchmark."""

from dataclasses import replace

from unnoise.published_tables import reported
from unnoise.recipes import EPSILON, NO_CLIPPING, OPENWEBTEXT_RUN, PUBLISHED_RUN, Recipe
from unnoise.recipes.text8 import genmd4_text8, md4_text8

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

mdlm_lm1b = mdlm_owt.variant(
    title="MDLM on LM1B, 12 layers of 768",
    published="perplexity ≤ 27.0 (test)",
    differs="our Transformer in place of a DDiT; windows of one stream in place of padded sentences",
    vocab=30_522,
    options={"data": "lm1b", "codec": "gpt2:bert-base-uncased", "length": 128},
)

sedd_owt = mdlm_owt.variant(
    title="SEDD on OpenWebText, small: 12 layers of 768",
    paper="Lou et al. 2023, arXiv:2310.16834",
    published=f"{reported('openwebtext', 'SEDD Absorb (reimpl.)', 'openwebtext')}, as trained again for arXiv:2406.04329",
    differs="our Transformer in place of a DDiT",
    options={"method": "sedd-absorb", "steps": 1_300_000},
)

sedd_owt_medium = sedd_owt.variant(
    title="SEDD on OpenWebText, medium: 24 layers of 1024",
    published="",
    options={"width": 1024, "depth": 24, "heads": 16},
)

sedd_uniform_owt = sedd_owt.variant(
    title="SEDD with uniform noise on OpenWebText, small: 12 layers of 768",
    published="",
    options={"method": "sedd-uniform:schedule=geometric,scaled=false"},
)

sedd_uniform_owt_medium = sedd_uniform_owt.variant(
    title="SEDD with uniform noise on OpenWebText, medium: 24 layers of 1024",
    options={"width": 1024, "depth": 24, "heads": 16},
)

md4_owt = md4_text8.variant(
    title="MD4 on OpenWebText, small: 12 layers of 768",
    published=reported("openwebtext", "MD4", "openwebtext", "Small"),
    vocab=50_257,
    options={"data": "openwebtext", "codec": "gpt2:gpt2", "length": 1024, "lr": 3e-4, "dropout": 0.02},
)

md4_owt_medium = md4_owt.variant(
    title="MD4 on OpenWebText, medium: 24 layers of 1024",
    published=reported("openwebtext", "MD4", "openwebtext", "Medium"),
    options={"method": f"md4:offset={EPSILON},schedule=cosine", "width": 1024, "depth": 24, "heads": 16, "dropout": 0.0},
)

genmd4_owt = md4_owt.variant(
    title="GenMD4 on OpenWebText, small: 12 layers of 768",
    published=reported("openwebtext", "GenMD4", "openwebtext"),
    differs=genmd4_text8.differs,
    options={"method": "genmd4", "process_lr": 3e-4},
)

PLAID_STEPS, PLAID_WARMUP = 92_000, 2500
RATE = 1.4e-3 * 256 / 384  # μP: the script's learning rate is for width 256

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
        steps=PLAID_STEPS,
        lr=RATE,
        process_lr=1e-2,
        beta2=0.99,
        weight_decay=4e-5 / RATE,  # 4e-5 is subtracted per step at the full rate
        weight_decay_on="all",
        warmup_steps=PLAID_WARMUP,
        cooldown=1 - PLAID_WARMUP / PLAID_STEPS,
    ),
)

FLEXMDM_STEPS, FLEXMDM_WARMUP = 1_000_000, 2000

flexmdm_owt = Recipe(
    title="Flex-MDM on OpenWebText, 12 layers of 768, texts of at most 1,024 tokens",
    paper="Kim et al. 2025, arXiv:2509.01025",
    differs="our Transformer in place of a DDiT; one cosine in place of ten with restarts; one stream of text is cut into "
    "sentences",
    vocab=50_257,
    options=replace(
        OPENWEBTEXT_RUN,
        method="flexmdm",
        batch=1024,
        steps=FLEXMDM_STEPS,
        lr=3e-4,
        beta2=0.999,
        weight_decay=0.03,
        weight_decay_on="all",
        warmup_steps=FLEXMDM_WARMUP,
        cooldown=1 - FLEXMDM_WARMUP / FLEXMDM_STEPS,
        lr_schedule="cosine",
        dropout=0.05,
        max_grad_norm=NO_CLIPPING,
        ema_decay=0.9999,
    ),
)

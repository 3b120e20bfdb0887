"""Runs on text8 and enwik8: Multinomial Diffusion, D3PM, Bayesian flow networks, MD4 and GenMD4."""

from dataclasses import replace

from unnoise.published_tables import reported
from unnoise.recipes import EPSILON, NO_CLIPPING, TEXT8_RUN, Recipe

EPOCHS = 1000  # epochs of 351,562 sequences of text8, or 281,250 of enwik8; the learning rate decays by 0.99 after each

multinomial_text8 = Recipe(
    title="Multinomial Diffusion on text8, 12 layers of 512, T = 1000",
    paper="Hoogeboom et al. 2021, arXiv:2102.05379",
    published=reported("compression", "Multinomial Text Diffusion", "text8"),
    differs="our Transformer; 8 heads as in the paper, where the command of its repository has 16, half of them local; windows "
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
        lr_final=0.99**EPOCHS,
        max_grad_norm=NO_CLIPPING,
        eval_every=10_987,
        save_every=10_987,
    ),
)

multinomial_enwik8 = multinomial_text8.variant(
    title="Multinomial Diffusion on enwik8, 12 layers of 512, T = 4000",
    published=reported("compression", "Multinomial Text Diffusion", "enwik8"),
    options={
        "method": "multinomial:steps=4000,importance=true",
        "data": "enwik8",
        "codec": "bytes",
        "length": 320,
        "steps": EPOCHS * 8790,
        "eval_every": 8790,
        "save_every": 8790,
    },
)

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

d3pm_uniform_text8 = d3pm_text8.variant(
    title="D3PM with uniform noise on text8, 12 layers of 768, T = 1000",
    published=reported("text8", "D3PM Uniform", "text8"),
    options={"method": "d3pm-uniform:steps=1000,hybrid=0"},
)

# β(1) = 0.75 as in the paper; the repository has √β(1) = 0.75 and at most 10,000,000 steps
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
        batch=8 * 416,  # 8 devices
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

MD4_STEPS, MD4_WARMUP = 1_000_000, 2000

md4_text8 = Recipe(
    title="MD4 on text8, 12 layers of 768",
    paper="Shi et al. 2024, arXiv:2406.04329",
    published=reported("text8", "MD4", "text8"),
    differs="our Transformer in place of gated perceptrons with adaLN-zero; dropout of single features, not of whole channels, "
    "and none of attention weights",
    options=replace(
        TEXT8_RUN,
        method=f"md4:offset={EPSILON},schedule=linear",
        batch=512,
        steps=MD4_STEPS,
        lr=5e-4,
        beta2=0.999,
        weight_decay=0.03,
        weight_decay_on="all",
        warmup_steps=MD4_WARMUP,
        cooldown=1 - MD4_WARMUP / MD4_STEPS,
        lr_schedule="cosine",
        dropout=0.05,
        max_grad_norm=NO_CLIPPING,
        ema_decay=0.9999,
    ),
)

genmd4_text8 = md4_text8.variant(
    title="GenMD4 on text8, 12 layers of 768",
    published=reported("text8", "GenMD4", "text8"),
    differs=f"{md4_text8.differs}; the learned exponents do not decay",
    options={"method": "genmd4", "lr": 3e-4, "process_lr": 3e-4},
)

"""SEDD with absorbing noise on OpenWebText, small: arXiv:2310.16834, from the configuration of its repository."""

from dataclasses import replace

from unnoise.recipes import mdlm_owt

recipe = replace(
    mdlm_owt.recipe,
    title="SEDD on OpenWebText, small: 12 layers of 768",
    paper="Lou et al. 2023, arXiv:2310.16834",
    published="perplexity ≤ 24.1 (validation, as retrained for arXiv:2406.07524; not confirmed)",
    differs="our Transformer in place of a DDiT",
    options=replace(mdlm_owt.recipe.options, method="sedd-absorb", steps=1_300_000),
)

"""MDLM on the One Billion Word benchmark: the run on OpenWebText with BERT's tokens and texts of 128."""

from unnoise.recipes.mdlm_owt import mdlm_owt

mdlm_lm1b = mdlm_owt.variant(
    title="MDLM on LM1B, 12 layers of 768",
    published="perplexity ≤ 27.0 (test)",
    differs="our Transformer in place of a DDiT; windows of one stream in place of padded sentences",
    vocab=30_522,
    options={"data": "lm1b", "codec": "gpt2:bert-base-uncased", "length": 128},
)

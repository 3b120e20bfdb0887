"""SEDD with absorbing noise on OpenWebText, small: arXiv:2310.16834, from the configuration of its repository."""

from unnoise.published_tables import reported
from unnoise.recipes.mdlm_owt import mdlm_owt

sedd_owt = mdlm_owt.variant(
    title="SEDD on OpenWebText, small: 12 layers of 768",
    paper="Lou et al. 2023, arXiv:2310.16834",
    published=f"{reported('openwebtext', 'SEDD Absorb (reimpl.)', 'openwebtext')}, as trained again for arXiv:2406.04329",
    differs="our Transformer in place of a DDiT",
    options={"method": "sedd-absorb", "steps": 1_300_000},
)

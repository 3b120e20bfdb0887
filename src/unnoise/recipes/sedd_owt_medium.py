"""SEDD with absorbing noise on OpenWebText, medium: a larger network."""

from unnoise.recipes.sedd_owt import sedd_owt

sedd_owt_medium = sedd_owt.variant(
    title="SEDD on OpenWebText, medium: 24 layers of 1024",
    published="",
    options={"width": 1024, "depth": 24, "heads": 16},
)

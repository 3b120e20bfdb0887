"""SEDD with uniform noise on OpenWebText, medium: a larger network."""

from unnoise.recipes.sedd_uniform_owt import sedd_uniform_owt

sedd_uniform_owt_medium = sedd_uniform_owt.variant(
    title="SEDD with uniform noise on OpenWebText, medium: 24 layers of 1024",
    options={"width": 1024, "depth": 24, "heads": 16},
)

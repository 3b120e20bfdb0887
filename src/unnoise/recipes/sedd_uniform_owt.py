"""SEDD with uniform noise on OpenWebText: arXiv:2310.16834, from the command of its repository.

The noise is geometric, σ from 1e-4 to 20, and the output is not scaled (`model.scale_by_sigma=False`).
"""

from unnoise.recipes.sedd_owt import sedd_owt

sedd_uniform_owt = sedd_owt.variant(
    title="SEDD with uniform noise on OpenWebText, small: 12 layers of 768",
    published="",
    options={"method": "sedd-uniform:schedule=geometric,scaled=false"},
)

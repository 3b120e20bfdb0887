"""D3PM with uniform noise on text8: the run with absorbing noise, without the hybrid loss, which made it worse (table 5)."""

from unnoise.published_tables import reported
from unnoise.recipes.d3pm_text8 import d3pm_text8

d3pm_uniform_text8 = d3pm_text8.variant(
    title="D3PM with uniform noise on text8, 12 layers of 768, T = 1000",
    published=reported("text8", "D3PM Uniform", "text8"),
    options={"method": "d3pm-uniform:steps=1000,hybrid=0"},
)

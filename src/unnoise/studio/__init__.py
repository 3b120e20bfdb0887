"""The studio: a local page to sample, fill in, correct and compare, and a completions endpoint (extra `studio`)."""

from unnoise.studio.app import make_app
from unnoise.studio.server import serve

__all__ = ["make_app", "serve"]

"""The studio: a local page to sample, fill in, correct and compare, and a completions endpoint (extra `studio`)."""

from unnoise.apps.studio.app import make_app
from unnoise.apps.studio.server import serve

__all__ = ["make_app", "serve"]

"""The studio: one local page to watch, fill in, correct and compare, and a completions endpoint (the extra `studio`)."""

from unnoise.studio.app import make_app
from unnoise.studio.server import serve

__all__ = ["make_app", "serve"]

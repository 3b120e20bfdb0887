"""`python -m unnoise`."""

from unnoise.cli import entry

entry()

"""`python -m unnoise`."""

from unnoise.cli.main import entry

entry()

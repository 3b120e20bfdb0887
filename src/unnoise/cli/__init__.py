"""The command line: a dataclass for each command."""

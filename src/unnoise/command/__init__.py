"""The commands: each is one dataclass whose fields are the options and whose docstring is the help."""

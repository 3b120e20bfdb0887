"""A method with its network and codec in one object, and what it can do."""

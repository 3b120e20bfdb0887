"""Published evaluation protocols and tables."""

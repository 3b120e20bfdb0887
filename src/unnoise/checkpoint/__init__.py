"""The files of saved models."""

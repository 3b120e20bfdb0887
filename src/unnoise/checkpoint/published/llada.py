"""Read by a row of the table in masked_decoder.py."""

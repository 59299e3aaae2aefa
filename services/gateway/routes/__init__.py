"""The HTTP surface, one module per group of addresses."""

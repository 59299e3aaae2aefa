"""The documentation, and what generates its reference part."""

"""Contexts: what of the user's notes goes into a model request."""

"""Traces and logs: where they go, and the few kinds of span that every service makes."""

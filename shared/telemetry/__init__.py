"""Traces and logs: the names that stand in them, the making of spans, and where both go."""

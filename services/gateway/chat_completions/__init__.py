"""OpenAI's Chat Completions as a second way to ask: its requests into turns, a turn's events into its chunks. Pure functions."""

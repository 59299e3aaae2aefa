"""Benchmarks: each runnable by one command, each printing a table of ratios against a baseline of the same run."""

"""Fixtures that every test may ask for by name."""

pytest_plugins = ["tests.support.nats_server", "tests.support.postgres"]

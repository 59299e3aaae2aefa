"""Fixtures that every test may ask for by name."""

pytest_plugins = [
    "tests.support.nats_server",
    "tests.support.postgres",
    "tests.support.scripted_provider",
    "tests.support.scripted_retrieval",
    "tests.support.chat_client",
]

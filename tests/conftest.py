"""Fixtures that every test may ask for by name."""

import pytest
from hypothesis import settings

# No deadline: a loaded machine is no failure. A failing example prints what reproduces it.
settings.register_profile("marginalia", deadline=None, print_blob=True)
# `--hypothesis-profile=thorough`: every generated case many times over.
settings.register_profile("thorough", deadline=None, print_blob=True, max_examples=10_000)
settings.load_profile("marginalia")

pytest_plugins = [
    "tests.support.nats_server",
    "tests.support.postgres",
    "tests.support.scripted_provider",
    "tests.support.scripted_retrieval",
    "tests.support.chat_client",
    "tests.support.agent_stack",
    "tests.support.traces",
    "tests.support.browser",
    "tests.support.containers",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", default="10", help="how many times an agent is killed in mid-answer, and the notes service in mid-write")
    parser.addoption("--writers", default="10", help="how many write one note at once")
    parser.addoption("--rounds", default="10", help="how often they do")
    parser.addoption("--edits", default="40", help="how many edits of another program come between our read and our write")
    parser.addoption("--container-kills", default="4", help="how many containers are killed under chats, one every five seconds")
    parser.addoption("--power-cuts", default="5", help="how many disks are looked at as a power cut would leave them")

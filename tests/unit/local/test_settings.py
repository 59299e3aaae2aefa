from pathlib import Path

import pytest

from local.settings import LocalSettings


def test_the_defaults_are_those_of_the_surface(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MARGINALIA_HOME", "MARGINALIA_PORT", "MARGINALIA_VAULTS", "NATS_URL", "MODEL_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    settings = LocalSettings()
    assert (settings.home, settings.host, settings.port) == (Path("data"), "127.0.0.1", 8080)
    assert settings.vaults == ()
    assert settings.nats_url is None
    assert settings.model_base_url is None


def test_vaults_are_separated_by_colons_and_empty_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARGINALIA_VAULTS", "/a:b::")
    monkeypatch.setenv("MODEL_BASE_URL", "")
    settings = LocalSettings()
    assert settings.vaults == (Path("/a"), Path("b"))
    assert settings.model_base_url is None


def test_telemetry_and_the_search_path_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAMESPACE", "x")
    monkeypatch.setenv("SOMEBODYS_SECRET", "x")
    settings = LocalSettings()
    assert settings.telemetry["OTEL_SERVICE_NAMESPACE"] == "x"
    assert "PATH" in settings.inherited
    assert "SOMEBODYS_SECRET" not in {**settings.inherited, **settings.telemetry}

"""Secrets come from files where a variable names one, and what is wrong with a file is said without the secret."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from local.settings import LocalSettings
from services.agent.providers import load
from services.agent.settings import AgentSettings
from shared.secret_files import SecretFileError
from shared.settings import DatabaseSettings, ServiceSettings, read


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NATS_PASSWORD", "DATABASE_PASSWORD", "DATABASE_URL", "MODEL_API_KEY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(f"{name}_FILE", raising=False)


def test_a_secret_is_read_from_its_file_without_the_line_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("k-1 \r\n")
    monkeypatch.setenv("MODEL_API_KEY_FILE", str(tmp_path / "key"))
    assert AgentSettings().model_api_key == SecretStr("k-1 ")
    assert LocalSettings().model_api_key == SecretStr("k-1 ")


def test_a_file_variable_that_is_empty_counts_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_PASSWORD_FILE", "")
    monkeypatch.setenv("NATS_PASSWORD", "n-1")
    assert ServiceSettings().nats_password == SecretStr("n-1")


def test_only_secrets_come_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "name").write_text("another")
    monkeypatch.setenv("MODEL_NAME_FILE", str(tmp_path / "name"))
    assert AgentSettings().model_name == "marginalia-demo"


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "cannot be read: No such file"), (b"", "is empty"), (b"\n", "is empty"), (b"\xff\xfe", "is no text")],
    ids=["missing", "empty", "blank line", "binary"],
)
def test_a_file_that_is_not_usable_ends_the_process_with_one_line(
    content: bytes | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setenv("NATS_PASSWORD_FILE", str(path))
    with pytest.raises(SystemExit) as ended:
        read(ServiceSettings)
    assert str(ended.value).startswith(f"NATS_PASSWORD_FILE names {path}, which {said}")
    assert "\n" not in str(ended.value)


def test_a_secret_given_twice_is_refused_without_being_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password").write_text("from-the-file")
    monkeypatch.setenv("NATS_PASSWORD_FILE", str(tmp_path / "password"))
    monkeypatch.setenv("NATS_PASSWORD", "from-the-environment")
    with pytest.raises(SystemExit) as ended:
        read(ServiceSettings)
    assert str(ended.value) == "NATS_PASSWORD and NATS_PASSWORD_FILE are both set; one of them must go."


def test_a_setting_that_is_not_usable_is_named_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODEL_TOOL_CALLING", "hunter2")
    with pytest.raises(SystemExit) as ended:
        read(AgentSettings)
    assert str(ended.value).startswith("MODEL_TOOL_CALLING: ")
    assert "hunter2" not in str(ended.value)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgresql://notes@db:5432/marginalia", "postgresql://notes:a%2Fb%40c@db:5432/marginalia"),
        ("postgresql://notes:old@db/marginalia?sslmode=verify-full", "postgresql://notes:a%2Fb%40c@db/marginalia?sslmode=verify-full"),
        ("postgresql://notes@one,two:6432/marginalia", "postgresql://notes:a%2Fb%40c@one,two:6432/marginalia"),
    ],
)
def test_the_databases_password_becomes_part_of_its_address(url: str, address: str) -> None:
    assert DatabaseSettings(DATABASE_URL=url, DATABASE_PASSWORD="a/b@c").database == address
    assert DatabaseSettings(DATABASE_URL=url).database == url


def test_a_providers_key_comes_from_the_file_of_its_variable(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("k-2\n")
    file = tmp_path / "providers.toml"
    file.write_text('[[provider]]\nname = "x"\nbase_url = "http://x/v1"\nkey_variable = "X_KEY"\nmodels = ["m"]\n')
    settings = AgentSettings(MARGINALIA_PROVIDERS=file)
    provider, _ = load(settings, {"X_KEY_FILE": str(tmp_path / "key")}).choose("x", None)
    assert provider.api_key == SecretStr("k-2")
    with pytest.raises(SecretFileError, match="X_KEY_FILE names"):
        load(settings, {"X_KEY_FILE": str(tmp_path / "none")})


def test_the_local_stack_hands_on_where_a_providers_key_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "providers.toml"
    file.write_text('[[provider]]\nkey_variable = "X_KEY"\n')
    monkeypatch.setenv("X_KEY_FILE", "/keys/x")
    assert LocalSettings(MARGINALIA_PROVIDERS=file).provider_keys() == {"X_KEY_FILE": "/keys/x"}

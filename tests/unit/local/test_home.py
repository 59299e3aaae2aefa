import json
import os
import stat
from pathlib import Path

import pytest

from local.errors import StartError
from local.home import Home


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_home_is_for_its_owner_alone(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "deep" / "data")
    assert mode(home.path) == 0o700
    home.write_endpoints({"nats": "nats://x"})
    assert mode(home.path / "endpoints.json") == 0o600
    assert json.loads((home.path / "endpoints.json").read_text()) == {"nats": "nats://x"}
    home.close()


def test_a_second_instance_is_refused_and_told_who_holds_the_home(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "data")
    with pytest.raises(StartError, match=r"another Marginalia \(process \d+\) uses the data directory"):
        Home.open(tmp_path / "data")
    home.close()
    Home.open(tmp_path / "data").close()


def test_a_home_below_a_file_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match=r"^the data directory .*/file/data cannot be written to: Not a directory$"):
        Home.open(tmp_path / "file" / "data")


def test_secrets_are_made_once_and_kept(tmp_path: Path) -> None:
    home = Home.open(tmp_path)
    password, is_new = home.admin_password()
    assert is_new
    assert len(password) >= 20
    assert home.admin_password() == (password, False)
    assert home.secret("nats") == home.secret("nats") != home.secret("postgres")
    assert mode(home.admin_password_file) == mode(home.path / "secrets" / "nats") == 0o600
    home.close()


def test_unreadable_endpoints_count_as_none(tmp_path: Path) -> None:
    home = Home.open(tmp_path)
    assert home.read_endpoints() == {}
    (tmp_path / "endpoints.json").write_text("{torn")
    assert home.read_endpoints() == {}
    home.close()


def test_a_log_over_its_limit_is_set_aside_at_the_next_start(tmp_path: Path) -> None:
    home = Home.open(tmp_path)
    home.log_file("nats").write_bytes(b"x" * (10 * 1024 * 1024 + 1))
    log = home.open_log("nats")
    os.write(log, b"first\n\nlast\n")
    os.close(log)
    assert home.log_tail("nats", 2) == ["first", "last"]
    assert (tmp_path / "logs" / "nats.log.1").stat().st_size > 10 * 1024 * 1024
    home.close()

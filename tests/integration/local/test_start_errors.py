import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from local.home import Home
from local.ports import free_port
from local.stack import ROOT


def start(home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `python -m local` until it ends by itself, which it does within 20 s where it cannot start."""
    environment = {"PATH": os.environ["PATH"], "MARGINALIA_HOME": str(home), "MARGINALIA_PORT": str(free_port()), **variables}
    return subprocess.run(
        [sys.executable, "-m", "local"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=20, check=False
    )


def refusal(result: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr."""
    assert result.returncode == 1
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        line = refusal(start(tmp_path / "home", MARGINALIA_PORT=port))
    assert line == f"marginalia: port {port} on 127.0.0.1 is taken by another program; set MARGINALIA_PORT to a free one"


def test_a_home_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be written to" in refusal(start(tmp_path / "file" / "home"))


def test_a_second_instance_is_one_line(tmp_path: Path) -> None:
    home = Home.open(tmp_path / "home")
    assert re.search(r"another Marginalia \(process \d+\) uses", refusal(start(home.path)))
    home.close()


@pytest.mark.parametrize(
    ("vaults", "said"),
    [("{0}/none", "does not exist"), ("{0}/note.md", "is not a directory"), ("{0}/a/Notes:{0}/b/Notes", "two vaults have one name")],
)
def test_a_wrong_vault_is_one_line_and_nothing_is_made(tmp_path: Path, vaults: str, said: str) -> None:
    (tmp_path / "note.md").write_text("")
    for parent in ("a", "b"):
        (tmp_path / parent / "Notes").mkdir(parents=True)
    assert said in refusal(start(tmp_path / "home", MARGINALIA_VAULTS=vaults.format(tmp_path)))
    assert not (tmp_path / "home").exists()


def test_data_of_another_postgres_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "home" / "postgres").mkdir(parents=True)
    (tmp_path / "home" / "postgres" / "PG_VERSION").write_text("16\n")
    assert "was made by PostgreSQL 16" in refusal(start(tmp_path / "home"))


def test_a_port_that_is_no_number_is_one_line(tmp_path: Path) -> None:
    assert "MARGINALIA_PORT" in refusal(start(tmp_path / "home", MARGINALIA_PORT="http"))

"""What the compose files promise for every container, and what is documented of them; no engine is needed."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.contracts.subject import SERVICES
from shared.messaging.permissions import USERS
from shared.messaging.server_configuration import configuration

ROOT = Path(__file__).parents[2]
FILES = ("docker-compose.yml", "docker-compose.telemetry.yml")
# These end when they are done.
ONCE = {"migrations"}
# Images that hold one program and no shell.
WITHOUT_HEALTH_CHECK = {"collector", "jaeger"} | ONCE


def services(file: str) -> dict[str, dict[str, Any]]:
    """Those that a file starts, not those it adds a variable to."""
    found = yaml.safe_load((ROOT / file).read_text())["services"]
    return {name: service for name, service in found.items() if "image" in service}


def own() -> list[Any]:
    return [pytest.param(name, service, id=name) for file in FILES for name, service in services(file).items()]


@pytest.mark.parametrize(("name", "service"), own())
def test_every_container_is_held_to_the_same_limits(name: str, service: dict[str, Any]) -> None:
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["mem_limit"]
    assert service["pids_limit"]
    assert service["restart"] == ("on-failure" if name in ONCE else "unless-stopped")
    assert service["logging"]["options"]["max-size"]


@pytest.mark.parametrize("file", FILES)
def test_whatever_can_be_asked_says_whether_it_is_well(file: str) -> None:
    silent = {name for name, service in services(file).items() if "healthcheck" not in service}
    assert silent <= WITHOUT_HEALTH_CHECK


def test_there_is_a_container_for_each_service_from_one_file() -> None:
    found = services("docker-compose.yml")
    assert set(SERVICES) <= found.keys()
    for name in SERVICES:
        assert found[name]["build"]["dockerfile"] == "services/Dockerfile"
        assert found[name]["build"]["args"]["SERVICE"] == name


@pytest.mark.parametrize(("name", "service"), own())
def test_images_are_pinned_to_a_version(name: str, service: dict[str, Any]) -> None:
    assert re.search(r":-?v?\d[\w.-]*\}?$", service["image"]), name


def test_the_server_of_the_containers_is_set_up_as_the_written_configuration_is() -> None:
    written = json.loads(configuration(dict.fromkeys(USERS, "x"), "/data"))
    text = (ROOT / "deploy" / "nats" / "nats.conf").read_text()
    assert int(re.findall(r"max_file_store: (\d+)", text)[0]) == written["jetstream"]["max_file_store"]
    assert int(re.findall(r"max_payload: (\d+)MB", text)[0]) * 1024**2 == written["max_payload"]
    assert "sync_interval: always" in text


def test_every_variable_of_the_files_is_documented() -> None:
    page = (ROOT / "docs" / "operating.md").read_text()
    names = set(re.findall(r"\$\{(\w+)", "".join((ROOT / file).read_text() for file in FILES)))
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_every_secret_of_the_files_is_made_and_used(tmp_path: Path) -> None:
    declared = {name: entry["file"] for file in FILES for name, entry in yaml.safe_load((ROOT / file).read_text())["secrets"].items()}
    used = {
        one if isinstance(one, str) else one["source"]
        for file in FILES
        for service in services(file).values()
        for one in service.get("secrets", ())
    }
    assert used == declared.keys()
    (tmp_path / "deploy").mkdir()
    (tmp_path / "local" / "sample_vault").mkdir(parents=True)
    (tmp_path / "deploy" / "prepare.sh").write_text((ROOT / "deploy" / "prepare.sh").read_text())
    subprocess.run(["sh", "deploy/prepare.sh"], cwd=tmp_path, check=True, capture_output=True, timeout=30)
    assert [file for file in declared.values() if not (tmp_path / file).read_text().strip()] == []

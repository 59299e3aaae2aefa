"""One image by itself, beside the PostgreSQL that it works on: what the database's owner runs before anything else (OP-4)."""

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from shared import credentials
from shared.contracts.subject import SERVICES
from shared.database import roles
from tests.support.containers import IMAGE_VARIABLES

pytestmark = pytest.mark.timeout(1500)

ANSWERS_WITHIN = 60.0
# What clears up after a test that was killed is an image of its own, from a registry.
testcontainers_config.ryuk_disabled = True


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A directory as `deploy/prepare.sh` makes it, but for the names of other parts."""
    folder = tmp_path / "secrets"
    folder.mkdir()
    credentials.password(folder / "postgres_password")
    roles.passwords_in(folder)
    for file in folder.iterdir():
        file.chmod(0o444)
    return folder


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


def container(image: str, network: Network, secrets: Path) -> DockerContainer:
    return DockerContainer(image).with_network(network).with_volume_mapping(str(secrets), "/run/secrets", "ro")


@pytest.fixture
def postgres(images: None, network: Network, secrets: Path) -> Iterator[DockerContainer]:
    made = container(IMAGE_VARIABLES["POSTGRES_IMAGE"], network, secrets).with_network_aliases("postgres").with_exposed_ports(5432)
    made.with_envs(POSTGRES_USER="marginalia", POSTGRES_DB="marginalia", POSTGRES_PASSWORD_FILE="/run/secrets/postgres_password")
    with made as running:
        deadline = time.monotonic() + ANSWERS_WITHIN
        while running.exec("pg_isready --quiet --host 127.0.0.1").exit_code:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield running


def migrated(network: Network, secrets: Path) -> str:
    """What the image says when it has run."""
    made = container(f"{IMAGE_VARIABLES['MARGINALIA_IMAGES']}/migrations:0.1.0", network, secrets)
    made.with_envs(DATABASE_URL="postgresql://marginalia@postgres/marginalia", DATABASE_PASSWORD_FILE="/run/secrets/postgres_password")
    with made as running:
        ended = running.get_wrapped_container().wait(timeout=ANSWERS_WITHIN)
        output, errors = running.get_logs()
        assert ended["StatusCode"] == 0, errors.decode()
        return output.decode()


async def test_the_owners_image_makes_roles_and_tables_and_changes_nothing_when_it_runs_again(
    postgres: DockerContainer, network: Network, secrets: Path
) -> None:
    first, again = migrated(network, secrets), migrated(network, secrets)
    assert all(f"{service}: " in first and f"{service}: 0 migrations" not in first for service in SERVICES)
    assert all(f"{service}: 0 migrations" in again for service in SERVICES)
    address = f"{postgres.get_container_host_ip()}:{postgres.get_exposed_port(5432)}"
    for service in SERVICES:
        password = roles.password_file(secrets, service).read_text().strip()
        db = await asyncpg.connect(f"postgresql://marginalia_{service}:{quote(password)}@{address}/marginalia", timeout=10)
        try:
            assert await db.fetchval(f"SELECT count(*) FROM {service}.migrations")
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await db.fetchval(f"SELECT count(*) FROM {next(other for other in SERVICES if other != service)}.migrations")
        finally:
            await db.close()

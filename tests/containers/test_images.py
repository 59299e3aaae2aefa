"""What is in the images, and what a container may do."""

import json
from pathlib import Path

import pytest

from services.gateway.app import GRACE_SECONDS
from shared.messaging.bus import DRAIN_SECONDS
from shared.messaging.cancellation import CLEANUP_SECONDS
from shared.telemetry.setup import FINISH_SECONDS
from tests.support.containers import PROGRAMS, SERVICES, Containers, run

pytestmark = pytest.mark.timeout(1500)


def image(containers: Containers, service: str) -> str:
    (state,) = containers.inspected(containers.ids(service)[0])
    return str(state["Config"]["Image"])


def listed(image_name: str, folder: str) -> set[str]:
    names = run("docker", "run", "--rm", "--network", "none", "--entrypoint", "ls", image_name, "-A", folder).split()
    return set(names) - {"__pycache__"}


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_holds_what_is_shared_and_its_one_service(containers: Containers, service: str) -> None:
    name = image(containers, service)
    assert listed(name, "/app") == {"shared", "services"}
    assert listed(name, "/app/services") == {"__init__.py", service}
    assert listed(name, "/requirements") == {"shared.txt", f"{service}.txt"}


def test_the_web_client_is_in_the_gateways_image_without_its_sources(containers: Containers) -> None:
    name = image(containers, "gateway")
    assert listed(name, "/app/services/gateway/web") == {"dist"}
    assert {"index.html", "diagram.html", "assets"} <= listed(name, "/app/services/gateway/web/dist")


def test_no_process_is_root_or_may_become_it(containers: Containers) -> None:
    for program in PROGRAMS:
        container = containers.ids(program)[0]
        status = dict(
            line.split(":\t", 1) for line in run("docker", "exec", container, "cat", "/proc/1/status").splitlines() if ":\t" in line
        )
        assert set(status["Uid"].split()) & {"0"} == set(), program
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0, program
        assert status["NoNewPrivs"] == "1", program


def test_no_container_can_write_to_its_image(containers: Containers) -> None:
    for program in PROGRAMS:
        container = containers.ids(program)[0]
        (state,) = containers.inspected(container)
        assert state["HostConfig"]["ReadonlyRootfs"], program
        probe = "for at in / /app /etc /usr /var; do ! touch $at/probe 2>/dev/null || echo $at; done"
        assert run("docker", "exec", "--user", "0", container, "sh", "-c", probe).split() == [], program


def test_no_secret_shows_in_a_container_or_an_image(containers: Containers) -> None:
    folder = containers.directory / "deploy" / "secrets"
    secrets = {
        path.name: path.read_text().strip() for path in folder.iterdir() if path.name.endswith("_password") or path.name == "qdrant_api_key"
    }
    assert {"postgres_password", "admin_password", "nats_agent_password", "qdrant_api_key"} <= secrets.keys()
    for program in PROGRAMS:
        name = image(containers, program)
        shown = (
            json.dumps(containers.inspected(*containers.ids(program)))
            + run("docker", "history", "--no-trunc", name)
            + run("docker", "inspect", name)
        )
        environment = run("docker", "exec", containers.ids(program)[0], "sh", "-c", "tr '\\0' '\\n' </proc/1/environ")
        assert [secret for secret, value in secrets.items() if value in shown + environment] == [], program


def test_each_container_sees_only_the_secrets_it_uses(containers: Containers) -> None:
    for service in SERVICES:
        mine = set(run("docker", "exec", containers.ids(service)[0], "ls", "/run/secrets").split())
        assert {name for name in mine if name.startswith("nats_")} == {f"nats_{service}_password"}
        assert {name for name in mine if name.startswith("postgres_")} == {f"postgres_{service}_password"}
        assert ("provider_api_key" in mine) == (service == "agent")
        assert ("admin_password" in mine) == (service == "gateway")


def test_the_secrets_of_the_host_are_behind_a_closed_directory(containers: Containers) -> None:
    assert (containers.directory / "deploy" / "secrets").stat().st_mode & 0o077 == 0


def test_a_second_preparation_changes_nothing(containers: Containers) -> None:
    def held() -> dict[Path, str]:
        return {
            path: path.read_text() for path in (*(containers.directory / "deploy" / "secrets").iterdir(), containers.directory / ".env")
        }

    before = held()
    run("sh", "deploy/prepare.sh", cwd=containers.directory)
    assert held() == before


def test_stores_have_no_way_out(containers: Containers) -> None:
    for program in ("nats", "postgres", "qdrant", "notes", "contexts"):
        (state,) = containers.inspected(containers.ids(program)[0])
        (network,) = state["NetworkSettings"]["Networks"]
        assert json.loads(run("docker", "network", "inspect", network))[0]["Internal"], program
        assert not state["HostConfig"]["PortBindings"], program


def test_a_container_is_given_longer_to_stop_than_its_service_takes_at_most(containers: Containers) -> None:
    # Drain, finish, interrupt, send the last answers, close: each bounded; before, the gateway's requests; after, the last spans.
    longest = GRACE_SECONDS + 4 * DRAIN_SECONDS + CLEANUP_SECONDS + FINISH_SECONDS
    for service in SERVICES:
        (state,) = containers.inspected(containers.ids(service)[0])
        assert state["Config"]["StopTimeout"] > longest, service

"""From the compose file to a cited answer, with more of each part, and with any part lost."""

import asyncio
import shutil

import pytest

from tests.support.containers import PROGRAMS, Containers, cited, run, searchable
from tests.support.polling import eventually

pytestmark = pytest.mark.timeout(1500)  # the first test of a fresh machine has all images built

ANSWERS_WITHIN = 60.0


async def test_one_command_starts_a_system_that_answers_with_citations(containers: Containers) -> None:
    async with containers.client() as client:
        await eventually(lambda: searchable(client), ANSWERS_WITHIN, every=0.2)
        turn = await client.ask("How do I feed a sourdough starter?")
        assert "50 g of flour" in turn.text
        assert turn.done["cited"] == [1]
        (source,) = [event for event in turn.of("Citation") if event["number"] == 1]
        assert source["file_path"] == "Kitchen/Sourdough.md"
        page = await client.http.get("/")
        assert "/assets/" in page.text, "the web client is not in the image"


async def test_every_container_becomes_healthy(containers: Containers) -> None:
    async def unhealthy() -> list[str]:
        states = containers.inspected(*(one for name in PROGRAMS for one in containers.ids(name)))
        return [state["Name"] for state in states if state["State"]["Health"]["Status"] != "healthy"]

    async def healthy() -> bool:
        return not await unhealthy()

    await eventually(healthy, ANSWERS_WITHIN, every=0.5)


async def test_notes_written_through_the_api_are_files_on_the_host(containers: Containers) -> None:
    async with containers.client() as client:
        (workspace,) = (await client.http.get("/api/workspaces")).json()["items"]
        path = f"/api/workspaces/{workspace['id']}/notes/written.md"
        made = await client.http.put(path, json={"content": "# Written\n"}, headers={"if-none-match": "*"})
        assert made.status_code == 201, made.text
        file = containers.directory / "vaults" / "Sample" / "written.md"
        assert file.read_text() == "# Written\n"
        assert file.stat().st_uid == file.parent.stat().st_uid
        deleted = await client.http.delete(path, headers={"if-match": made.headers["etag"]})
        assert deleted.status_code == 204


async def test_three_agents_share_the_work_and_answers_still_come(containers: Containers) -> None:  # OP-4
    containers.up(agent=3)
    assert len(containers.ids("agent")) == 3
    async with containers.client() as client:
        await eventually(lambda: cited(client), ANSWERS_WITHIN, every=0.2)
        turns = await asyncio.gather(*(client.ask(f"How do I feed a sourdough starter? {number}") for number in range(12)))
    assert {turn.done["status"] for turn in turns} == {"completed"}
    assert all(turn.done["cited"] for turn in turns)


@pytest.mark.parametrize("name", PROGRAMS)
async def test_a_container_that_is_killed_comes_back_and_the_system_answers_again(containers: Containers, name: str) -> None:  # OP-3
    containers.up()
    (container,) = containers.ids(name)
    await containers.killed_and_restarted(container)
    async with containers.client() as client:  # a gateway that was started again may have another port
        await eventually(lambda: cited(client), ANSWERS_WITHIN, every=0.2)


async def test_tables_that_are_lost_are_brought_back_from_a_backup(containers: Containers) -> None:  # OP-3; docs/operating.md, Back up
    containers.up()
    async with containers.client() as client:
        await eventually(lambda: cited(client), ANSWERS_WITHIN, every=0.2)
        turn = await client.ask("How do I feed a sourdough starter?")
        conversation = await client.conversation(turn.started["conversation_id"])
    save, bring_back = containers.documented("Back up")
    containers.shell(save)
    containers.compose("down")
    run("docker", "volume", "rm", f"{containers.project}_postgres", f"{containers.project}_nats")
    shutil.rmtree(containers.directory / "deploy" / "secrets")
    shutil.copytree(containers.directory.parent / "backup" / "secrets", containers.directory / "deploy" / "secrets")
    containers.shell(bring_back)
    async with containers.client() as client:
        assert await client.conversation(turn.started["conversation_id"]) == conversation
        await eventually(lambda: cited(client), ANSWERS_WITHIN, every=0.2)

"""The end, and what is there afterwards."""

import pytest

from tests.support.containers import SERVICES, Containers, cited
from tests.support.polling import eventually

pytestmark = pytest.mark.timeout(1500)


async def test_services_end_by_themselves_and_what_was_said_is_there_after_a_new_start(containers: Containers) -> None:  # OP-3
    containers.up(agent=2)
    async with containers.client() as client:
        await eventually(lambda: cited(client), 60, every=0.2)
        turn = await client.ask("How do I feed a sourdough starter?")
    containers.compose("stop")
    for service in SERVICES:
        for state in containers.inspected(*containers.ids(service)):
            assert state["State"]["ExitCode"] == 0, f"{service} had to be killed"
    containers.compose("down")  # the containers go, the volumes stay
    containers.up()
    async with containers.client() as client:
        assert (await client.events(turn.started["turn_id"])).events == turn.events
        assert (await client.conversation(turn.started["conversation_id"]))["messages"][1]["content"] == turn.text
        await eventually(lambda: cited(client), 60, every=0.2)

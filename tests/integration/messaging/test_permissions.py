"""Every service's NATS user, on a real server: it may do what its service does, and is refused everything else."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import nats
import pytest
from nats.js.errors import APIError
from pydantic import SecretStr

from shared.contracts.subject import EVERYONE, Empty, Event, Query
from shared.messaging import permissions, streams
from shared.messaging.bus import Bus, Route
from shared.messaging.scope import Scope
from shared.messaging.server_configuration import password_file
from tests.support.nats_server import RunningNats

STREAMS = ("CHAT", "NOTES")
# What can be asked of JetStream that reads, changes or removes what others have said.
JETSTREAM = (
    *("$JS.API.INFO", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.ACCOUNT.PURGE.x", "$JS.API.STREAM.CREATE.OTHER"),
    *(f"$JS.API.STREAM.{verb}.{stream}" for stream in STREAMS for verb in ("INFO", "DELETE", "PURGE", "MSG.GET", "MSG.DELETE", "SNAPSHOT")),
    *(f"$JS.API.CONSUMER.{verb}.{stream}" for stream in STREAMS for verb in ("CREATE", "LIST", "NAMES")),
    *(f"$JS.API.CONSUMER.{verb}.{stream}.spy" for stream in STREAMS for verb in ("CREATE", "DURABLE.CREATE", "INFO", "MSG.NEXT", "DELETE")),
    *("$JS.API.CONSUMER.DELETE.NOTES.retrieval", "$JS.ACK.NOTES.spy.1.1.1.1.1", "$SYS.REQ.SERVER.PING", "$SYS.REQ.USER.INFO"),
)
# To whom these are allowed. Said by hand, beside the derivation that is shown here.
STREAM_USERS = {
    "$JS.API.STREAM.CREATE.CHAT": {"agent"},
    "$JS.API.STREAM.UPDATE.CHAT": {"agent"},
    "$JS.API.DIRECT.GET.CHAT": {"agent"},
    "$JS.API.DIRECT.GET.CHAT.chat.events.x": {"agent"},
    "$JS.API.STREAM.CREATE.NOTES": {"notes", "retrieval"},
    "$JS.API.STREAM.UPDATE.NOTES": {"notes"},
    "$JS.API.DIRECT.GET.NOTES": set(),
    "$JS.API.CONSUMER.DURABLE.CREATE.NOTES.retrieval": {"retrieval"},
    "$JS.API.CONSUMER.INFO.NOTES.retrieval": {"retrieval"},
    "$JS.API.CONSUMER.MSG.NEXT.NOTES.retrieval": {"retrieval"},
    "$JS.ACK.NOTES.retrieval.1.1.1.1.1": {"retrieval"},
}

FIND = Query("notes.find", Empty, Empty, owner="notes")
Query.registry.remove(FIND)  # type: ignore[arg-type]


class Session:
    """A connection that says plainly what the server refuses: NATS's own protocol, a line at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._subscriptions = 0

    async def send(self, *lines: str) -> list[str]:
        """What the server says to these, up to its answer to a ping."""
        self._writer.write("".join(f"{line}\r\n" for line in (*lines, "PING")).encode())
        said: list[str] = []
        async with asyncio.timeout(5):
            while (line := (await self._reader.readline()).decode().strip()) != "PONG":
                if not line:
                    raise ConnectionError(said)
                said.append(line)
        return said

    async def may_publish(self, subject: str, reply: str = "") -> bool:
        said = await self.send(f"PUB {subject} {reply} 0", "")
        return not [line for line in said if line.startswith("-ERR")]

    async def may_subscribe(self, subject: str) -> bool:
        self._subscriptions += 1
        refused = [line for line in await self.send(f"SUB {subject} {self._subscriptions}") if line.startswith("-ERR")]
        if not refused:
            await self.send(f"UNSUB {self._subscriptions}")
        return not refused

    async def listen(self, subject: str) -> None:
        self._subscriptions += 1
        assert await self.send(f"SUB {subject} {self._subscriptions}") == []

    async def next_message(self) -> str:
        """The head of the next one."""
        async with asyncio.timeout(5):
            head = (await self._reader.readline()).decode().strip()
            await self._reader.readline()
            return head


@asynccontextmanager
async def session(server: RunningNats, user: str, password: str | None = None) -> AsyncIterator[Session]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.server.port)
    try:
        await reader.readline()  # INFO
        if password is None:
            password = password_file(server.home.secrets, user).read_text().strip()
        one = Session(reader, writer)
        options = {"user": user, "pass": password, "verbose": False, "pedantic": False, "headers": True}
        assert await one.send(f"CONNECT {json.dumps(options)}") == []
        yield one
    finally:
        writer.close()
        await writer.wait_closed()


def may_ask(user: str, query: Query) -> bool:  # type: ignore[type-arg]
    if query.subject.endswith(".ping"):
        return user == query.owner or any(user in other.askers for other in Query.registry if other.owner == query.owner)
    return user in query.askers


@pytest.mark.parametrize("user", permissions.USERS)
async def test_a_user_may_ask_and_publish_what_its_service_does_and_nothing_else(shared_nats: RunningNats, user: str) -> None:
    async with session(shared_nats, user) as one:
        for query in Query.registry:
            assert await one.may_publish(query.subject) == may_ask(user, query), query.subject
        for event in Event.registry:
            assert await one.may_publish(event.subject("x")) == (event.owner in (user, *EVERYONE)), event.template
        for subject, allowed in STREAM_USERS.items():
            assert await one.may_publish(subject) == (user in allowed), subject
        for subject in (*JETSTREAM, *(f"_INBOX.{other}.x" for other in permissions.USERS), "elsewhere"):
            assert not await one.may_publish(subject), subject


@pytest.mark.parametrize("user", permissions.USERS)
async def test_a_user_hears_what_its_service_serves_and_its_own_answers_and_nothing_else(shared_nats: RunningNats, user: str) -> None:
    async with session(shared_nats, user) as one:
        for query in Query.registry:
            assert await one.may_subscribe(query.subject) == (user == query.owner), query.subject
        for event in Event.registry:
            heard = event.listeners == EVERYONE or user in event.listeners
            assert await one.may_subscribe(event.wildcard) == heard, event.template
        for other in permissions.USERS:
            assert await one.may_subscribe(f"_INBOX.{other}.>") == (other == user), other
        for subject in (">", "*", "*.*", "_INBOX.>", "_INBOX.*.*", "$JS.>", "$JS.API.>", "$SYS.>", "notes.>", "agent.>", "chat.>"):
            assert not await one.may_subscribe(subject), subject


async def test_only_whoever_was_asked_can_answer_and_once(shared_nats: RunningNats) -> None:
    inbox = "_INBOX.gateway.secret.1"
    async with session(shared_nats, "gateway") as gateway, session(shared_nats, "notes") as notes, session(shared_nats, "agent") as agent:
        await gateway.listen("_INBOX.gateway.>")
        await notes.listen("notes.read")
        assert await gateway.may_publish("notes.read", inbox)
        assert (await notes.next_message()).split() == ["MSG", "notes.read", "1", inbox, "0"]
        assert not await agent.may_publish(inbox)
        assert await notes.may_publish(inbox)
        assert (await gateway.next_message()).split() == ["MSG", inbox, "1", "0"]
        assert not await notes.may_publish(inbox)


@pytest.mark.parametrize(("user", "password"), [("notes", "wrong"), ("nobody", "wrong"), ("", "")])
async def test_nobody_comes_in_without_a_users_password(shared_nats: RunningNats, user: str, password: str) -> None:
    with pytest.raises((AssertionError, ConnectionError), match="Authorization Violation"):
        async with session(shared_nats, user, password):
            pass


def test_an_answer_may_take_as_long_as_its_asker_waits() -> None:
    for user in permissions.USERS:
        assert all(permissions.of(user).reply_seconds > query.timeout_seconds for query in Query.registry if query.owner == user)


async def test_whoever_is_asked_answers_into_inboxes_alone(own_nats: RunningNats) -> None:
    """Else a question would act with the rights of the one it is put to: the server lets an answer go wherever the question says."""
    url = f"nats://127.0.0.1:{own_nats.server.port}"
    passwords = {user: SecretStr(password_file(own_nats.home.secrets, user).read_text().strip()) for user in ("notes", "agent")}
    served, asker, heard = Bus("notes", url, passwords["notes"]), Bus("agent", url, passwords["agent"]), list[Empty]()

    async def find(request: Empty, _: Scope) -> Empty:
        heard.append(request)
        return request

    await served.connect()
    await asker.connect()
    try:
        await served.serve([Route(FIND, find)])
        await streams.ensure(served.nats, "NOTES", owned=True)
        for subject in ("notes.ping", "notes.find"):
            for reply in ("$JS.API.STREAM.DELETE.NOTES", "$JS.API.STREAM.PURGE.NOTES", "notes.changed.x", ""):
                await asker.nats.publish(subject, b"{}", reply=reply)
        assert await asker.client.hears("notes")  # what came before has been taken in
        admin = await nats.connect(own_nats.url)
        (stream,) = await admin.jetstream().streams_info()
        await admin.close()
        assert (stream.config.name, stream.state.messages, heard) == ("NOTES", 0, [])
    finally:
        await asker.stop()
        await served.stop()


async def test_streams_that_are_there_are_found_whatever_the_disk_has_free(own_nats: RunningNats) -> None:  # OP-3
    admin = await nats.connect(own_nats.url)
    try:
        async with asyncio.timeout(10):
            for name in (*STREAMS, *STREAMS):
                await streams.ensure(admin, name, owned=True)
    finally:
        await admin.close()


async def test_nobody_empties_a_stream(own_nats: RunningNats) -> None:
    admin = await nats.connect(own_nats.url)
    try:
        for name in STREAMS:
            await streams.ensure(admin, name, owned=True)
            with pytest.raises(APIError, match="purge not permitted"):
                await admin.jetstream().purge_stream(name)
    finally:
        await admin.close()

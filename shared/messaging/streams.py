"""The JetStream streams: their settings, made by whoever needs them first, and reading one subject's messages.

Facts are synced to disk before they are acknowledged (the server runs with `sync_interval: always`); the token log is written behind,
since syncing each of sixty-four events of an answer costs ten times as much and falls seconds behind. A reader of the log therefore
checks sequence numbers, and a turn that has ended is read from the database.
"""

import asyncio
import json
import logging
from dataclasses import dataclass, replace

from nats.aio.client import Client as Nats
from nats.errors import Error as NatsError
from nats.js.api import DiscardPolicy, PersistMode, RetentionPolicy, StorageType, StreamConfig
from nats.js.errors import APIError

from shared.contracts import chat, notes

logger = logging.getLogger(__name__)

DAY = 24 * 3600.0
GIB = 1024**3
REPLICAS = 3
# Of JetStream's errors: replicas take a cluster; the stream is there with other settings.
NO_CLUSTER = 10074
OTHER_SETTINGS = 10058

# `deny_…`: messages leave a stream by age and size alone, whoever asks JetStream.
STREAMS: dict[str, StreamConfig] = {
    chat.STREAM: StreamConfig(
        name=chat.STREAM,
        subjects=[chat.EVENTS.wildcard],
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.OLD,
        max_age=DAY,
        max_bytes=2 * GIB,
        storage=StorageType.FILE,
        allow_direct=True,
        persist_mode=PersistMode.ASYNC,
        deny_delete=True,
        deny_purge=True,
    ),
    notes.STREAM: StreamConfig(
        name=notes.STREAM,
        subjects=[notes.CHANGED.wildcard],
        retention=RetentionPolicy.LIMITS,
        discard=DiscardPolicy.OLD,
        max_age=30 * DAY,
        max_bytes=2 * GIB,
        storage=StorageType.FILE,
        allow_direct=True,
        duplicate_window=120,
        deny_delete=True,
        deny_purge=True,
    ),
}

_SIZES = [config.max_bytes or 0 for config in STREAMS.values()]
# What a server must be allowed to keep. It reserves a stream's largest size, and answers for one that is there only where there is room for
# another; left alone it allows itself three quarters of what is free on the disk when it starts.
STORE_BYTES = sum(_SIZES) + max(_SIZES)


@dataclass(frozen=True, slots=True)
class Stored:
    """A message as the stream keeps it."""

    sequence: int
    headers: dict[str, str]
    data: bytes


async def ensure(nats: Nats, name: str, *, owned: bool) -> None:
    """Have the stream, on three servers of a cluster; waits until JetStream answers. The settings of one that is there are its owner's."""
    # What is replicated is not written behind: another server has it.
    config = replace(STREAMS[name], num_replicas=REPLICAS, persist_mode=None)
    js = nats.jetstream(timeout=5)
    while True:
        try:
            await js.add_stream(config)
            return
        except APIError as error:
            if error.err_code == NO_CLUSTER:
                config = STREAMS[name]
                continue
            if error.err_code == OTHER_SETTINGS:
                if owned:
                    await js.update_stream(config)
                return
            logger.warning("JetStream refused the stream %s: %s", name, error.description)
        except NatsError as error:
            logger.warning("JetStream does not answer yet: %r", error)
        await asyncio.sleep(0.5)


async def read_subject(nats: Nats, stream: str, subject: str, *, batch: int = 500, seconds: float = 5.0) -> list[Stored]:
    """Every message that the stream holds of one subject now, oldest first, by batched direct gets (no consumer is made).

    Raises:
        TimeoutError: the server did not answer in time.
    """
    found: list[Stored] = []
    pending = True
    while pending:
        inbox = nats.new_inbox()
        subscription = await nats.subscribe(inbox)
        try:
            first = found[-1].sequence + 1 if found else 1
            request = json.dumps({"seq": first, "next_by_subj": subject, "batch": batch}).encode()
            await nats.publish(f"$JS.API.DIRECT.GET.{stream}", request, reply=inbox)
            async with asyncio.timeout(seconds):
                while True:
                    message = await subscription.next_msg(timeout=seconds)
                    headers = message.headers or {}
                    if "Status" in headers:  # 204: the batch has ended; 404: there is nothing (more)
                        pending = headers.get("Nats-Num-Pending", "0") != "0"
                        break
                    found.append(Stored(int(headers["Nats-Sequence"]), headers, message.data))
        finally:
            await subscription.unsubscribe()
    return found

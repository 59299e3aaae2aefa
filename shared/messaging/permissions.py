"""What each service's NATS user may do: what the contracts say that it serves, asks, publishes and hears, and nothing else.

Each service's inboxes have a prefix of their own, so that nobody else hears its answers. A reply can be sent only by whoever was asked,
once, as long as its asker may wait. Where to is said by the asker and not checked by the server; see `shared.messaging.reply`.
"""

import importlib
import math
import pkgutil
from dataclasses import dataclass

import shared.contracts
from shared.contracts.control import PING
from shared.contracts.index import OWNER as INDEX
from shared.contracts.subject import EVERYONE, SERVICES, Event, Query

USERS = (*SERVICES, INDEX)
ADMINISTRATOR = "marginalia"
# Of all users. What is asked is answered there and nowhere else (`shared.messaging.reply`).
INBOXES = "_INBOX."
# A reply under way when its asker's time ends is still let through, to be dropped there.
REPLY_GRACE_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Permissions:
    """Subjects, with NATS's wildcards. `reply_seconds`: how long after a request its answer may be sent."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    reply_seconds: int


def inbox_prefix(user: str) -> str:
    """Under which all replies to that user arrive."""
    return f"{INBOXES}{user}"


def of(user: str) -> Permissions:
    """The permissions of one of `USERS`."""
    for module in pkgutil.iter_modules(shared.contracts.__path__):
        importlib.import_module(f"shared.contracts.{module.name}")
    served = [query for query in Query.registry if query.owner == user]
    asked = [query for query in Query.registry if user in query.askers]
    pinged = {user, *(query.owner for query in asked)}
    published = [event for event in Event.registry if event.owner in (user, *EVERYONE)]
    heard = [event for event in Event.registry if event.listeners == EVERYONE or user in event.listeners]
    publish = {
        *(query.subject for query in asked),
        *(PING[owner].subject for owner in pinged),
        *(event.wildcard for event in published),
        *(subject for event in Event.registry for subject in _stream_subjects(event, user)),
    }
    subscribe = {f"{inbox_prefix(user)}.>", *(query.subject for query in served), *(event.wildcard for event in heard)}
    longest = max(query.timeout_seconds for query in served)
    return Permissions(tuple(sorted(publish)), tuple(sorted(subscribe)), math.ceil(longest) + REPLY_GRACE_SECONDS)


def _stream_subjects(event: Event, user: str) -> list[str]:
    """What JetStream is asked about the stream of an event; whoever needs the stream first makes it, its owner alone changes it."""
    if event.stream is None or (user != event.owner and user not in event.consumers):
        return []
    api = "$JS.API"
    found = [f"{api}.STREAM.CREATE.{event.stream}"]
    if user == event.owner:
        found.append(f"{api}.STREAM.UPDATE.{event.stream}")
    if user == event.owner and event.read_back:
        found += [f"{api}.DIRECT.GET.{event.stream}", f"{api}.DIRECT.GET.{event.stream}.{event.wildcard}"]
    if user in event.consumers:
        consumer = f"{event.stream}.{user}"
        found += [f"{api}.CONSUMER.{verb}.{consumer}" for verb in ("DURABLE.CREATE", "INFO", "MSG.NEXT")]
        found.append(f"$JS.ACK.{consumer}.>")
    return found

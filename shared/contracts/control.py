"""Cancelling, and asking a service whether it is ready.

A cancel is published on `cancel.<scope>` by whoever gives up: the gateway for a client that left, a service whose own caller gave
up, the agent for a user's stop. Every process listens to `cancel.>` without a queue group and interrupts the work it runs under that
scope *or below it*: scope ids are dotted paths, so cancelling `<turn>` reaches `<turn>.3`, and giving up on one search does not
end its turn. Cancelling twice, or after the end, does nothing. A cancel that arrives before its work is remembered (60 s).
"""

from shared.contracts.index import OWNER as INDEX
from shared.contracts.subject import EVERYONE, SERVICES, Empty, Event, Message, Query

# What a cancel says of itself.
CANCEL_REASONS = frozenset({"disconnect", "requested", "deadline", "shutdown", "superseded", "caller_gone"})


class Cancel(Message):
    """Why a scope is cancelled: one of `CANCEL_REASONS`."""

    reason: str


class Ping(Message):
    """`scope` is the question's; None asks whether anybody hears at all."""

    scope: str | None = None


class Health(Message):
    """`ready` when every store that the service needs has answered just now; `problems` names those that did not."""

    ready: bool
    problems: dict[str, str] = {}


CANCEL = Event("cancel.{scope}", owner="*", stream=None, message=Cancel, listeners=EVERYONE)

# Asked by whoever has waited for an answer for a while: does anybody still work on it? Every process of the owner hears it, without a
# queue group; whoever holds the question answers at once, without touching any store. Who may ask an owner anything may ping it, and each
# itself.
PING: dict[str, Query[Ping, Empty]] = {
    name: Query(f"{name}.ping", Ping, Empty, owner=name, timeout_seconds=0.8, idempotent=False) for name in (*SERVICES, INDEX)
}

HEALTH: dict[str, Query[Empty, Health]] = {
    name: Query(
        f"{name}.health",
        Empty,
        Health,
        owner=name,
        askers=() if name == "gateway" else ("gateway",),
        timeout_seconds=1.5,
        idempotent=False,
    )
    for name in SERVICES
}

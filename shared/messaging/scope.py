"""A scope: the id under which work may be cancelled, the time that is left for it, the account it is for.

The budget travels as what is *left* (`Timeout-Ms`), as gRPC does it, since clocks differ between machines; inside a process it is a
point on the monotonic clock. Ids are dotted paths: work asked of another service runs under a child of the asker's scope.
"""

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Self
from uuid import UUID, uuid4

from shared.messaging import headers as names

Role = Literal["admin", "member"]

# Where a message names no budget, e.g. from a tool on the command line.
DEFAULT_SECONDS = 30.0
SECONDS_MAX = 3600.0


@dataclass(frozen=True, slots=True)
class Account:
    """Who a request acts for."""

    id: UUID
    role: Role


@dataclass(frozen=True, slots=True)
class Scope:
    """See the module. `deadline` is on `time.monotonic()`. Without an account the work is a service's own."""

    id: str
    deadline: float
    account: Account | None = None
    _children: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1), repr=False, compare=False)

    @classmethod
    def root(cls, seconds: float, *, account: Account | None = None, scope_id: str | None = None) -> Self:
        """A new scope with `seconds` to go."""
        return cls(scope_id or uuid4().hex, time.monotonic() + seconds, account)

    def child(self, seconds: float) -> "Scope":
        """A scope below this one, with `seconds` or what this one has left, whichever is less."""
        deadline = min(self.deadline, time.monotonic() + seconds)
        return Scope(f"{self.id}.{next(self._children)}", deadline, self.account)

    @property
    def remaining(self) -> float:
        """Seconds left; negative once the deadline has passed."""
        return self.deadline - time.monotonic()

    def to_headers(self) -> dict[str, str]:
        """The headers that carry this scope, measured now."""
        carried = {names.CANCEL_SCOPE: self.id, names.TIMEOUT_MS: str(max(0, int(self.remaining * 1000)))}
        if self.account is not None:
            carried[names.ACCOUNT_ID] = str(self.account.id)
            carried[names.ACCOUNT_ROLE] = self.account.role
        return carried

    @classmethod
    def from_headers(cls, headers: Mapping[str, str] | None) -> Self:
        """The scope a message carries.

        Raises:
            ValueError: a header is there and malformed.
        """
        headers = headers or {}
        milliseconds = int(headers.get(names.TIMEOUT_MS, DEFAULT_SECONDS * 1000))
        seconds = min(max(0, milliseconds) / 1000, SECONDS_MAX)
        account = None
        if (account_id := headers.get(names.ACCOUNT_ID)) is not None:
            role = headers.get(names.ACCOUNT_ROLE)
            if role not in ("admin", "member"):
                raise ValueError(f"{names.ACCOUNT_ROLE} is neither admin nor member")
            account = Account(UUID(account_id), role)  # type: ignore[arg-type]
        return cls.root(seconds, account=account, scope_id=headers.get(names.CANCEL_SCOPE))


def is_within(scope_id: str, ancestor: str) -> bool:
    """Whether cancelling `ancestor` reaches `scope_id`."""
    return scope_id == ancestor or scope_id.startswith(f"{ancestor}.")

"""The workspaces: which directories are served, under which id, and what each account may do in them.

A workspace is known by its directory's name. Its row stays when the directory is no longer asked for, and comes back with the same id.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast
from uuid import UUID

import asyncpg

from services.notes.note_path import is_plain_text, nfc, safe_directory_path, safe_name
from services.notes.vault import Vault
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.notes import CreateWorkspace, Member, PutMembers, UpdateWorkspace, Workspace
from shared.database.pool import Pool, connection, transaction
from shared.messaging.scope import Account

TITLE_CHARACTERS_MAX = 200

type Access = Literal["read", "write"]


class VaultsError(Exception):
    """The directories to serve cannot be workspaces."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A served workspace as its keeper needs it."""

    id: UUID
    directory: str
    vault: Vault
    problem: str | None
    identity: str | None


@dataclass(frozen=True, slots=True)
class Readable:
    """A workspace that an account may read, as mentions need it. `revision`: of its last committed change."""

    id: UUID
    directory: str
    title: str
    notes_dir: str
    revision: int
    vault: Vault
    problem: str | None


def require_distinct(vaults: Sequence[Path], created: Path | None) -> dict[str, Path]:
    """The directories by the workspace's name.

    Raises:
        VaultsError: two have one name, or one has none that can be used.
    """
    found: dict[str, Path] = {}
    for path in (*vaults, *(path for path in _directories(created) if path not in vaults)):
        name = nfc(path.name)
        if not name or not is_plain_text(str(path)):
            raise VaultsError(f"the directory {str(path)!r} has no name that a workspace could have")
        if name in found:
            raise VaultsError(f"two directories have one name: {found[name]} and {path} (MARGINALIA_VAULTS)")
        found[name] = path
    return found


async def serve(pool: Pool, vaults: Sequence[Path], created: Path | None) -> None:
    """Enter the directories to serve into the table, and what is not among them any more as not served.

    While the directory of created workspaces is away as a whole, those stay served: that is an outage.

    Raises:
        VaultsError: see `require_distinct`.
    """
    found = await asyncio.to_thread(require_distinct, vaults, created)
    away = created is not None and not await asyncio.to_thread(created.is_dir)
    async with transaction(pool) as connected:
        await connected.execute(
            "UPDATE workspaces SET served = false WHERE served AND NOT directory = ANY($1) AND NOT ($2 AND starts_with(root, $3))",
            list(found), away, f"{created}/",
        )  # fmt: skip
        await _enter(connected, found)


async def discover(pool: Pool, vaults: Sequence[Path], created: Path | None) -> None:
    """Enter directories that have come since; nothing stops being served while the process runs."""
    found = await asyncio.to_thread(require_distinct, vaults, created)
    async with connection(pool) as connected:
        known = await connected.fetch("SELECT directory FROM workspaces WHERE served")
        new = found.keys() - {row["directory"] for row in known}
        if new:
            await _enter(connected, {name: found[name] for name in new})


async def _enter(connected: Any, found: dict[str, Path]) -> None:
    await connected.executemany(
        "INSERT INTO workspaces (directory, root, title, notes_dir) VALUES ($1, $2, $1, '') "
        "ON CONFLICT (directory) DO UPDATE SET root = excluded.root, served = true "
        "WHERE (workspaces.root, workspaces.served) IS DISTINCT FROM (excluded.root, true)",
        [(name, str(path)) for name, path in found.items()],
    )


def _directories(created: Path | None) -> list[Path]:
    try:
        return sorted(path for path in created.iterdir() if not path.name.startswith(".") and path.is_dir()) if created else []
    except OSError:
        return []


async def served(pool: Pool) -> list[Kept]:
    """Every served workspace."""
    async with connection(pool) as connected:
        rows = await connected.fetch(
            "SELECT id, directory, root, notes_dir, problem, root_identity FROM workspaces WHERE served ORDER BY directory"
        )
    return [_kept(row) for row in rows]


async def unavailable(pool: Pool, *, count_unscanned: bool) -> str | None:
    """Which served workspaces cannot be relied on, or None; on request also those never scanned yet. The reasons, which name paths,
    are in the log: this is shown to anyone.
    """
    async with connection(pool) as connected:
        rows = await connected.fetch(
            "SELECT directory, CASE WHEN problem IS NULL THEN 'being read for the first time' ELSE 'not available' END AS state "
            "FROM workspaces "
            "WHERE served AND (problem IS NOT NULL OR ($1 AND scanned_at IS NULL)) ORDER BY directory",
            count_unscanned,
        )
    return "; ".join(f"{row['directory']}: {row['state']}" for row in rows) or None


async def require(pool: Pool, workspace: UUID, account: Account | None) -> Kept:
    """A workspace that the account may read.

    Raises:
        ServiceError: `workspace_not_found`.
    """
    row = await _row(pool, workspace, account)
    return _kept(row)


async def require_writable(pool: Pool, workspace: UUID, account: Account | None) -> Kept:
    """A workspace that the account may write in.

    Raises:
        ServiceError: `workspace_not_found`, `forbidden` where it may only read.
    """
    row = await _row(pool, workspace, account)
    if row["access"] != "write":
        raise ServiceError(ErrorCode.FORBIDDEN, "You may read this workspace, but not write in it.")
    return _kept(row)


def require_admin(account: Account | None) -> None:
    """Refuse what only an admin or a service may do.

    Raises:
        ServiceError: `forbidden`.
    """
    if account is not None and account.role != "admin":
        raise ServiceError(ErrorCode.FORBIDDEN, "Only an admin may do this.")


async def list_workspaces(pool: Pool, account: Account | None) -> list[Workspace]:
    """What the account may use, by directory."""
    async with connection(pool) as connected:
        rows = await connected.fetch(f"{_SELECT} ORDER BY directory", _member(account))
    return [_workspace(row) for row in rows]


async def readable(pool: Pool, account: Account | None) -> list[Readable]:
    """The same, with what mentions need of them."""
    async with connection(pool) as connected:
        rows = await connected.fetch(f"{_SELECT} ORDER BY directory", _member(account))
    return [_readable(row) for row in rows]


async def get(pool: Pool, workspace: UUID, account: Account | None) -> Workspace:
    """One workspace. Raises as `require`."""
    return _workspace(await _row(pool, workspace, account))


async def update(pool: Pool, request: UpdateWorkspace, account: Account | None) -> Workspace:
    """Change the title.

    Raises:
        ServiceError: `workspace_not_found`, `forbidden`, `invalid`.
    """
    await _row(pool, request.workspace, account)
    require_admin(account)
    if request.title is not None:
        title = _title(request.title)
        async with connection(pool) as connected:
            await connected.execute("UPDATE workspaces SET title = $2 WHERE id = $1", request.workspace, title)
    return await get(pool, request.workspace, account)


async def create(pool: Pool, created: Path | None, request: CreateWorkspace, account: Account | None) -> Workspace:
    """Make a directory and serve it. The row is committed after the directory is there.

    Raises:
        ServiceError: `forbidden`, `invalid`, `workspace_exists`, `service_unavailable`.
    """
    require_admin(account)
    directory = safe_name(request.directory)
    notes_dir = safe_directory_path(request.notes_dir)
    title = directory if request.title is None else _title(request.title)
    if created is None:
        raise ServiceError(ErrorCode.UNAVAILABLE, "This service has no data directory to make workspaces in.")
    async with transaction(pool) as connected:
        # Names are compared as file systems that fold case do: a vault may be moved to one.
        await connected.execute("SELECT pg_advisory_xact_lock(hashtext('notes create workspace'))")
        names = await connected.fetch("SELECT directory FROM workspaces")
        present = await asyncio.to_thread(_directories, created)
        taken = {row["directory"].casefold() for row in names} | {nfc(path.name).casefold() for path in present}
        if directory.casefold() in taken or not await asyncio.to_thread(_make, created / directory, notes_dir):
            raise ServiceError(ErrorCode.WORKSPACE_EXISTS, f"A workspace named {directory} exists already.")
        identifier = await connected.fetchval(
            "INSERT INTO workspaces (directory, root, title, notes_dir) VALUES ($1, $2, $3, $4) RETURNING id",
            directory, str(created / directory), title, notes_dir,
        )  # fmt: skip
    return await get(pool, identifier, account)


def _make(root: Path, notes_dir: str) -> bool:
    try:
        root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.mkdir()
        if notes_dir:
            (root / notes_dir).mkdir(parents=True)
    except FileExistsError:
        return False
    except OSError as error:
        raise ServiceError(ErrorCode.UNAVAILABLE, f"The directory cannot be made: {error.strerror}.", retry_after=5) from error
    return True


async def members(pool: Pool, workspace: UUID, account: Account | None) -> list[Member]:
    """Who may use a workspace; admins always may and are not listed.

    Raises:
        ServiceError: `workspace_not_found`, `forbidden`.
    """
    await _row(pool, workspace, account)
    require_admin(account)
    async with connection(pool) as connected:
        rows = await connected.fetch("SELECT account_id, access FROM members WHERE workspace = $1 ORDER BY account_id", workspace)
    return [Member(account_id=row["account_id"], access=row["access"]) for row in rows]


async def put_members(pool: Pool, request: PutMembers, account: Account | None) -> list[Member]:
    """Replace the members of a workspace.

    Raises:
        ServiceError: `workspace_not_found`, `forbidden`, `invalid` where an account stands twice.
    """
    await _row(pool, request.workspace, account)
    require_admin(account)
    if len({member.account_id for member in request.items}) < len(request.items):
        raise ServiceError(ErrorCode.INVALID, "An account stands twice among the members.")
    async with transaction(pool) as connected:
        # The row's lock keeps two lists from mixing.
        await connected.execute("SELECT 1 FROM workspaces WHERE id = $1 FOR UPDATE", request.workspace)
        await connected.execute("DELETE FROM members WHERE workspace = $1", request.workspace)
        await connected.executemany(
            "INSERT INTO members (workspace, account_id, access) VALUES ($1, $2, $3)",
            [(request.workspace, member.account_id, member.access) for member in request.items],
        )
    return await members(pool, request.workspace, account)


async def report(pool: Pool, workspace: UUID, problem: str | None, identity: str | None = None) -> None:
    """Say that a scan was believed (`problem` None, with the directory's identity) or why the vault cannot be relied on."""
    async with connection(pool) as connected:
        if problem is None:
            await connected.execute(
                "UPDATE workspaces SET problem = NULL, believe_loss = false, root_identity = $2, scanned_at = now() WHERE id = $1",
                workspace,
                identity,
            )
        else:
            await connected.execute("UPDATE workspaces SET problem = $2 WHERE id = $1", workspace, problem)


async def believe(pool: Pool, directory: str) -> bool:
    """Have the present loss of a workspace, now held to be an outage, taken for what it is; false where there is no such workspace."""
    async with connection(pool) as connected:
        done = await connected.execute(
            "UPDATE workspaces SET believe_loss = true WHERE directory = $1 AND problem IS NOT NULL", nfc(directory)
        )
    return bool(done == "UPDATE 1")


async def rebuild(pool: Pool, directory: str) -> bool:
    """Have the index of a workspace made anew from its files, within `keeping.RESCAN_SECONDS`; false where there is no such workspace."""
    async with connection(pool) as connected:
        done = await connected.execute("UPDATE workspaces SET read_as = NULL WHERE directory = $1 AND served", nfc(directory))
    return bool(done == "UPDATE 1")


async def take_belief(pool: Pool, workspace: UUID) -> bool:
    """Whether an operator said so since this was asked last."""
    async with connection(pool) as connected:
        found = await connected.fetchval(
            "UPDATE workspaces SET believe_loss = false WHERE id = $1 AND believe_loss RETURNING true", workspace
        )
    return bool(found)


# $1: a member's account, or null for who may use everything.
_SELECT = """
    SELECT id, directory, root, title, notes_dir, notes, revision, problem, available, root_identity,
        coalesce(members.access, 'write') AS access
    FROM workspaces LEFT JOIN members ON members.workspace = workspaces.id AND members.account_id = $1
    WHERE served AND ($1::uuid IS NULL OR members.access IS NOT NULL)
"""


async def _row(pool: Pool, workspace: UUID, account: Account | None) -> asyncpg.Record:
    async with connection(pool) as connected:
        row = await connected.fetchrow(f"{_SELECT} AND id = $2", _member(account), workspace)
    if row is None:
        raise not_found()
    return row


def not_found() -> ServiceError:
    """A workspace that is not there, or not for the asking account."""
    return ServiceError(ErrorCode.WORKSPACE_NOT_FOUND, "There is no such workspace.")


def _member(account: Account | None) -> UUID | None:
    return account.id if account is not None and account.role == "member" else None


def _workspace(row: asyncpg.Record) -> Workspace:
    return Workspace(
        id=row["id"],
        title=row["title"],
        directory=row["directory"],
        notes_dir=row["notes_dir"],
        notes=row["notes"],
        access=cast("Access", row["access"]),
        available=row["available"],
    )


def _kept(row: asyncpg.Record) -> Kept:
    vault = Vault(Path(row["root"]), row["notes_dir"])
    return Kept(row["id"], row["directory"], vault, row["problem"], row["root_identity"])


def _readable(row: asyncpg.Record) -> Readable:
    kept = _kept(row)
    return Readable(kept.id, kept.directory, row["title"], row["notes_dir"], row["revision"], kept.vault, kept.problem)


def _title(text: str) -> str:
    title = nfc(text).strip()
    if not title or len(title) > TITLE_CHARACTERS_MAX or not is_plain_text(title) or any(ord(character) < 32 for character in title):
        raise ServiceError(
            ErrorCode.INVALID, f"A title has 1 to {TITLE_CHARACTERS_MAX} characters, and none of them is a control character."
        )
    return title

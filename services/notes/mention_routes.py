"""The table of what the notes service answers about mentions."""

from typing import Any

from services.notes import workspaces
from services.notes.file_threads import FileThreads
from services.notes.mention_candidates import MentionCandidates
from services.notes.mention_feed import MentionFeed
from services.notes.reference_check import ReferenceCheck
from shared.contracts import mentions
from shared.contracts.mentions import Lexicon, LexiconRequest
from shared.database.pool import Pool
from shared.messaging.bus import Route
from shared.messaging.scope import Account, Scope

LEXICON_BYTES_MAX = 4 * 1024 * 1024


def mention_routes(pool: Pool, threads: FileThreads, feed: MentionFeed) -> list[Route[Any, Any]]:
    """Candidates, serialised references, lexicon."""
    candidates, check = MentionCandidates(pool, threads, feed), ReferenceCheck(pool, threads, feed)

    async def offer(request: mentions.CandidatesRequest, scope: Scope) -> mentions.Candidates:
        return await candidates.offer(request, scope.account)

    async def serialize(request: mentions.SerializeRequest, scope: Scope) -> mentions.Serialized:
        return await check.serialize(request, scope.account)

    async def lexicon(request: LexiconRequest, scope: Scope) -> Lexicon:
        return await _lexicon(pool, feed, request, scope.account)

    return [Route(mentions.CANDIDATES, offer), Route(mentions.SERIALIZE, serialize), Route(mentions.LEXICON, lexicon)]


async def _lexicon(pool: Pool, feed: MentionFeed, request: LexiconRequest, account: Account | None) -> Lexicon:
    """A version is the workspace's revision: what has the same one has the same titles, whichever process says so."""
    if request.workspace is None:
        return Lexicon(version="none", titles=None if "none" in request.known else [])
    workspace = next((one for one in await workspaces.readable(pool, account) if one.id == request.workspace), None)
    if workspace is None:
        raise workspaces.not_found()
    version = f"{workspace.id}-{workspace.revision}"
    if version in request.known:
        return Lexicon(version=version, titles=None)
    revision, titles = await feed.titles(workspace.id, workspace.revision)
    part, size = list[str](), 0
    for title in titles[request.after :]:
        size += len(title.encode()) + 3
        if part and size > LEXICON_BYTES_MAX:
            break
        part.append(title)
    return Lexicon(version=f"{workspace.id}-{revision}", titles=part, more=request.after + len(part) < len(titles))

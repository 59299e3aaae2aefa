"""What waits for the user's consent: a change of a note as it was drafted and shown (MD-5)."""

from typing import Any
from uuid import UUID

from shared.contracts.chat import Approval, Decision
from shared.contracts.notes import ApplyDraft, Change
from shared.contracts.subject import Message


class Proposal(Message):
    """A call that would change a note. It is carried out as it stands here, and on that version of the note alone.

    Attributes:
        call: the call's id; `name` and `arguments` as the client is told of it.
        base_hash: the version that was shown; None where the note would be new.
        content_hash: of the note as it would be.
    """

    call: str
    name: str
    arguments: dict[str, Any]
    workspace: UUID
    path: str
    change: Change
    base_hash: str | None
    content_hash: str
    diff: str
    diff_sha256: str

    @property
    def shown(self) -> Approval:
        """What the user decides on."""
        return Approval(workspace=self.workspace, path=self.path, diff=self.diff, diff_sha256=self.diff_sha256)

    @property
    def order(self) -> ApplyDraft:
        """What the notes service is asked to do once the user has consented."""
        return ApplyDraft(
            workspace=self.workspace, path=self.path, change=self.change, base_hash=self.base_hash, content_hash=self.content_hash
        )

    def concerns(self, other: "Proposal") -> bool:
        """Whether both change the same note: the second would be of a version that the first has replaced."""
        return (self.workspace, self.path) == (other.workspace, other.path)


# What was decided, by call.
type Decisions = dict[str, Decision]

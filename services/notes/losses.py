"""When missing notes were deleted, and when they are only out of sight.

A half-mounted share or a half-filled cache looks like someone deleting notes. Believing it costs years of notes, as one
synchronising program did; not believing a real deletion costs some minutes. See docs/adr/0010-a-vanished-vault-is-an-outage.md.
"""

from dataclasses import dataclass

FEW = 10
SHARE = 0.2
PERSISTING_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Loss:
    """What a scan misses.

    Attributes:
        known: notes in the index before.
        lost: those of them that were not seen and did not move.
        left: notes that were seen, new ones included.
        same_directory: whether the root is the directory of the last scan that was believed.
        seconds: for how long exactly these have been missing.
    """

    known: int
    lost: int
    left: int
    same_directory: bool
    seconds: float = 0.0


def problem(loss: Loss) -> str | None:
    """Why the loss is held to be an outage, or None where it is to be believed."""
    # In another directory, such as an empty mount point, even few missing notes say nothing about the vault.
    many = loss.lost > SHARE * loss.known and (loss.lost > FEW or not loss.same_directory)
    if not many:
        return None
    if loss.left and loss.same_directory and loss.seconds >= PERSISTING_SECONDS:
        return None
    return f"{loss.lost} of {loss.known} notes are missing; held to be an outage, nothing is deleted"

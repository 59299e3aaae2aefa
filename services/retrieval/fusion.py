"""Two rankings to one, by normalised scores.

Each leg's scores are stretched to 0..1 and added, half and half. Ranks alone (RRF) lose how sure a leg was: a weak leg ruins a strong
one's order. A leg that is missing leaves the other's order as it is.
"""

from collections.abc import Sequence
from uuid import UUID

from shared.contracts.index import Scored

SPARSE_SHARE = 0.5


def fuse(sparse: Sequence[Scored], dense: Sequence[Scored], limit: int) -> list[tuple[UUID, float]]:
    """Ids and scores, best first. `limit` is how many each leg was asked for."""
    if not sparse or not dense:
        return _ordered({hit.id: score for hit, score in _normalised(sparse or dense, limit, zero=bool(sparse))})
    scores: dict[UUID, float] = {}
    for leg, share, zero in ((sparse, SPARSE_SHARE, True), (dense, 1 - SPARSE_SHARE, False)):
        for hit, score in _normalised(leg, limit, zero=zero):
            scores[hit.id] = scores.get(hit.id, 0.0) + share * score
    return _ordered(scores)


def _normalised(leg: Sequence[Scored], limit: int, *, zero: bool) -> list[tuple[Scored, float]]:
    """From the leg's lowest score, or from `zero` where the leg holds all that has any score at all."""
    if not leg:
        return []
    top = leg[0].score
    floor = 0.0 if zero and len(leg) < limit else leg[-1].score
    span = top - floor
    return [(hit, (hit.score - floor) / span if span > 0 else 1.0) for hit in leg]


def _ordered(scores: dict[UUID, float]) -> list[tuple[UUID, float]]:
    return sorted(scores.items(), key=lambda item: (-item[1], item[0].int))

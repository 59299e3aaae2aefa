"""Two rankings to one, by normalised scores.

Each leg's scores are stretched to 0..1 and added, by a share that depends on the query. Ranks alone (RRF) lose how sure a leg
was: a weak leg ruins a strong one's order. A leg that is missing leaves the other's order as it is. Of what one leg found the other's score
is known, too: if what it did not find counted nothing there, a passage just below its end would fall as far as one that has none of it.
"""

from collections.abc import Sequence
from uuid import UUID

from services.retrieval.tokens import has_cjk, is_name
from shared.contracts.index import Scored

# What words count for: in Chinese, where every pair of characters is one, more than in English, where meaning has many words.
WORDS_SHARE = 0.4
WORDS_SHARE_CJK = 0.5
# Whoever types a name wants what has it, and its meaning is anybody's guess.
WORDS_SHARE_NAME = 0.7
# Cosines that lie closer together than this say nothing: among a few candidates they would be stretched to the whole range.
DENSE_SPAN_MIN = 0.05


def words_share(query: str) -> float:
    """How much of the score is the words'."""
    if is_name(query):
        return WORDS_SHARE_NAME
    return WORDS_SHARE_CJK if has_cjk(query) else WORDS_SHARE


def fuse(sparse: Sequence[Scored], dense: Sequence[Scored], share: float, *, all_words: bool) -> list[tuple[UUID, float]]:
    """Ids and scores, best first; between equals the one with the words. `all_words`: no passage outside `sparse` has any of the words."""
    some_have_none = not {hit.id for hit in dense} <= {hit.id for hit in sparse}
    by_words = _normalised(sparse, 0.0 if all_words or some_have_none else None, 0.0)
    by_vectors = _normalised(dense, None, DENSE_SPAN_MIN)
    if not by_words or not by_vectors:
        scores = by_words or by_vectors
    else:
        ids = {**by_words, **by_vectors}
        scores = {one: share * by_words.get(one, 0.0) + (1 - share) * by_vectors.get(one, 0.0) for one in ids}
    return sorted(scores.items(), key=lambda item: (-item[1], -by_words.get(item[0], 0.0), item[0].int))


def _normalised(leg: Sequence[Scored], floor: float | None, span_min: float) -> dict[UUID, float]:
    """From 0 at `floor` (None: the lowest score, or `span_min` below the best) to 1 at the best."""
    if not leg:
        return {}
    top = leg[0].score
    lowest = min(leg[-1].score, top - span_min) if floor is None else floor
    span = top - lowest
    return {hit.id: (hit.score - lowest) / span if span > 0 else 1.0 for hit in leg}

"""Chooses the sentences of the sources that answer a question best: by the words they share with it, rare ones counting more."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from local.demo_model.conversation import Question, Source
from local.demo_model.language import is_chinese, terms
from local.demo_model.sentences import sentences

_MOST = 4
_BEST_SOURCES = 4
_ENOUGH_OF_BEST = 0.4
_HEADING_WEIGHT = 0.55
_EARLIER_WEIGHT = 0.6
_NEAR_DUPLICATE = 0.65
_RANK_BONUS = 0.15
_NEAR_WEIGHT = 0.25
_CODE_WEIGHT = 0.7
_QUESTION_WEIGHT = 0.35
_AMOUNT_BONUS = 1.25
_ASKS_AMOUNT = re.compile(
    r"\bhow (often|many|much|long|far|high|hot|big|large|old|fast)\b|\bwhen\b|\bwhat (temperature|time|size|weight)\b"
    r"|多少|多久|多长|多大|多高|几"
    r"|什么时候",
    re.IGNORECASE,
)
_AMOUNT = re.compile(r"\d|\b(once|twice|daily|weekly|every|two|three|four|five|six|seven|eight|nine|ten)\b|[一二三四五六七八九十每]")
_PASSAGE_SHARE = 0.5
# The least share of the question's words that a source must hold to count as an answer. Pairs of characters match by chance more
# rarely than words do, and fewer of them match a paraphrase.
_LEAST_SHARE = {True: 0.25, False: 0.34}


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence and what its source is cited by."""

    mark: str
    text: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    source: int
    position: int
    text: str
    terms: frozenset[str]
    near: frozenset[str]
    around: frozenset[str]
    headings: frozenset[str]


def quotes(question: Question) -> list[Quote]:
    """The sentences to quote, in reading order; none where no source has to do with the question."""
    sources = (*question.mentioned, *question.sources)
    wanted = {**dict.fromkeys(question.earlier.terms, _EARLIER_WEIGHT), **dict.fromkeys(question.words.terms, 1.0)}
    candidates = list(_candidates(sources))
    if not wanted or not candidates:
        return []
    weights = _weights(wanted, candidates)
    amount = _ASKS_AMOUNT.search(question.text) is not None
    scored = [
        (_score(candidate, weights, len(sources)) * _form(candidate.text, amount=amount), candidate)
        for candidate in candidates
        if _is_relevant(candidate, wanted, question)
    ]
    scored = _about_itself(scored, question.words.terms)
    scored.sort(key=lambda pair: (-pair[0], pair[1].source, pair[1].position))
    chosen = _without_duplicates(scored)
    chosen.sort(key=lambda candidate: (candidate.source, candidate.position))
    return [Quote(sources[candidate.source].mark, candidate.text) for candidate in chosen]


def openings(question: Question) -> list[Quote]:
    """The first sentence of up to two of the best sources that are in another language than the question.

    Words cannot be compared across languages, but the search may well have found the right notes by meaning.
    """
    chinese = is_chinese(question.text)
    found: list[Quote] = []
    for source in question.sources[:_BEST_SOURCES]:
        first = next((text for text in sentences(source.content) if len(text) > 20 or is_chinese(text)), None)
        if first is not None and is_chinese(first) != chinese:
            found.append(Quote(source.mark, first))
    return found[:2]


def beginnings(question: Question) -> list[Quote]:
    """How the mentioned notes begin, for a question that names no topic of its own: "summarise this note"."""
    share = max(1, _MOST // max(1, len(question.mentioned)))
    return [Quote(source.mark, text) for source in question.mentioned for text in list(sentences(source.content))[:share]]


def _candidates(sources: Sequence[Source]) -> Iterable[_Candidate]:
    for at, source in enumerate(sources):
        headings = frozenset(terms(" ".join((*source.heading_path, PurePosixPath(source.file_path).stem.replace("-", " ")))))
        texts = list(sentences(source.content))
        held = [frozenset(terms(text)) for text in texts]
        around = headings.union(*held)
        for position, text in enumerate(texts):
            near = frozenset[str]().union(*held[max(0, position - 1) : position + 2])
            yield _Candidate(at, position, text, held[position], near, around, headings)


def _weights(wanted: Mapping[str, float], candidates: Sequence[_Candidate]) -> dict[str, float]:
    frequency = Counter(term for candidate in candidates for term in candidate.terms)
    total = len(candidates)
    return {term: weight * math.log(1 + (total + 1) / (frequency[term] + 0.5)) for term, weight in wanted.items()}


def _score(candidate: _Candidate, weights: Mapping[str, float], sources: int) -> float:
    inside = sum(weight for term, weight in weights.items() if term in candidate.terms)
    above = sum(weight for term, weight in weights.items() if term in candidate.headings and term not in candidate.terms)
    near = sum(weight for term, weight in weights.items() if term in candidate.near and term not in candidate.terms | candidate.headings)
    # A long sentence holds more words by chance alone; a very short one says little.
    length = len(candidate.terms)
    shape = 1 / (1 + max(0, length - 25) / 60) if length > 3 else 0.6
    first = 1.0 if candidate.position == 0 else 0.93
    rank = 1 + _RANK_BONUS * (sources - candidate.source) / max(1, sources)
    return (inside + _HEADING_WEIGHT * above + _NEAR_WEIGHT * near) * shape * first * rank


def _form(text: str, *, amount: bool) -> float:
    """What the form of a sentence says: a question answers none, a number answers "how much"."""
    if "?" in text or "？" in text:
        return _QUESTION_WEIGHT
    if text.startswith("`") and text.endswith("`"):
        return _CODE_WEIGHT
    return _AMOUNT_BONUS if amount and _AMOUNT.search(text) else 1.0


def _is_relevant(candidate: _Candidate, wanted: Mapping[str, float], question: Question) -> bool:
    """Whether the sentence, read below its headings, holds enough of the question; half of that within a passage that holds much of it."""
    if not any(term in candidate.terms for term in wanted) and candidate.position > 1:
        return False
    held = sum(1 for term in wanted if term in candidate.terms or term in candidate.headings)
    around = sum(1 for term in wanted if term in candidate.around)
    least = _LEAST_SHARE[is_chinese(question.text)] * len(question.words.terms)
    if around >= max(2.0, _PASSAGE_SHARE * len(question.words.terms)):
        least /= 2
    return held >= max(1, min(math.ceil(least), 4))


def _about_itself(scored: list[tuple[float, _Candidate]], own: frozenset[str]) -> list[tuple[float, _Candidate]]:
    """What holds a word of the question itself, where anything does: "and how is it baked?" is not about feeding any more."""
    return [pair for pair in scored if own & (pair[1].terms | pair[1].headings)] or scored


def _without_duplicates(scored: Sequence[tuple[float, _Candidate]]) -> list[_Candidate]:
    chosen: list[_Candidate] = []
    for score, candidate in scored:
        if len(chosen) == _MOST or score < _ENOUGH_OF_BEST * scored[0][0]:
            break
        if all(_likeness(candidate.terms, other.terms) < _NEAR_DUPLICATE for other in chosen):
            chosen.append(candidate)
    return chosen


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of the smaller set that the other holds too: a sentence within a longer one is a duplicate."""
    return len(one & other) / max(1, min(len(one), len(other)))

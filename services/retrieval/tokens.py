"""From text to words, and from words to sparse vectors.

Words are language-aware without knowing the language: Latin words become English stems, runs of Chinese, Japanese and Korean
characters their single characters and pairs, identifiers (`NX-7731-b`, `foo.bar_baz`, `ConvertFromJson`) themselves and their parts,
pictographs (a task's date, say) themselves.
Full-width forms are folded (NFKC), traditional Chinese characters to simplified ones, case too. A word is known by a 32-bit hash. A
document's weights are BM25's, without the inverse document frequency, which the index applies when it searches.
"""

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice, pairwise
from typing import NamedTuple

import Stemmer
from opencc import OpenCC

from shared.contracts.index import SparseVector

K1 = 1.2
B = 0.75
# What BM25 calls the average length, for a chunk of the usual size: words in Latin script, single characters in CJK.
AVERAGE_WORDS = 100
AVERAGE_CHARACTERS = 400

# A word of the headings, or of the title, counts like so many in the text.
HEADING_WEIGHT = 2.0
TITLE_WEIGHT = 1.0

# What a search looks up at most: each word costs time in both engines.
QUERY_WORDS_MAX = 512

# An identifier or a run of letters longer than this is no word that anyone would search for whole.
WORD_LENGTH_MAX = 64
# A longer run of CJK is more than one word.
CJK_WORD_LENGTH_MAX = 4
# A text of one endless run without spaces is cut into pieces of this length.
RUN_LENGTH_MAX = 4096

_STOP_WORDS = frozenset(
    {"a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of", "on", "or", "such"}
    | {"that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with"}
)

# Radicals, iteration marks, kana, ideographs with their extensions, Hangul.
_CJK = "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
# Dingbats, emoji and their like: people mark notes with them, and look for the marks.
_PICTOGRAPHS = "\u231a-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"
_LETTER = rf"[^\W{_CJK}]"
_PIECE = re.compile(
    rf"(?P<cjk>[{_CJK}]{{1,{RUN_LENGTH_MAX}}})"
    rf"|(?P<word>{_LETTER}{{1,{RUN_LENGTH_MAX}}}(?:[-._]{_LETTER}+){{0,16}}(?:\+\+|\#)?|[{_PICTOGRAPHS}])"
)
# The same in ASCII, twice as fast.
_ASCII_WORD = re.compile(rf"[A-Za-z0-9_]{{1,{RUN_LENGTH_MAX}}}(?:[-._][A-Za-z0-9_]+){{0,16}}(?:\+\+|\#)?")
_CJK_CHARACTER = re.compile(f"[{_CJK}]")
_PART = re.compile(r"[^\W_]+")
# `NX-7731-b`, `h264`, `foo_bar`, `foo.bar`, `ConvertFromJson`; but neither `1960` nor `boundary-layer`.
_IDENTIFIER = re.compile(r"[A-Za-z][-._]?\d|\d[A-Za-z]|\w_\w|[A-Za-z]{2}\.[A-Za-z]{2}|[a-z]{2}[A-Z]")
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")

# In C: in Python a new word costs forty times as much. It keeps the interpreter, so that threads may share it.
_stemmer = Stemmer.Stemmer("english")
_simplifier = OpenCC("t2s")


def words(text: str) -> Iterator[str]:
    """The words of a text in order, repeats included."""
    for piece in _PIECE.finditer(_folded(text)):
        if run := piece["cjk"]:
            yield from run
            yield from (run[at : at + 2] for at in range(len(run) - 1))
        else:
            yield from _latin(piece["word"])


class _Spelled(NamedTuple):
    """A spelling's words by their ids, and what it adds to a text's length."""

    ids: tuple[int, ...]
    latin: int
    characters: int


@lru_cache(200_000)
def _spelled(spelling: str) -> _Spelled:
    found = tuple(_latin(spelling))
    latin = sum(word[0].isascii() for word in found)
    return _Spelled(tuple(map(word_id, found)), latin, sum(len(word) == 1 and not word.isascii() for word in found))


def _frequencies(text: str) -> tuple[dict[int, int], float]:
    """How often each word stands in a text, as `words`, but each spelling is taken apart once; and how long the text is in average
    chunks: the scripts differ in how many words say the same.
    """
    runs, spellings = _runs_and_spellings(_folded(text))
    counts: dict[int, int] = {}
    characters = latin = 0
    for word, count in runs.items():
        number = word_id(word)
        counts[number] = counts.get(number, 0) + count
        characters += count if len(word) == 1 else 0
    for spelling, count in spellings.items():
        ids, words_in_latin, singles = _spelled(spelling)
        latin += count * words_in_latin
        characters += count * singles
        for number in ids:
            counts[number] = counts.get(number, 0) + count
    return counts, characters / AVERAGE_CHARACTERS + latin / AVERAGE_WORDS


def _runs_and_spellings(text: str) -> tuple[Counter[str], Counter[str]]:
    """How often characters and pairs of CJK stand in a folded text, and how often what is Latin."""
    if text.isascii():
        return Counter(), Counter(_ASCII_WORD.findall(text))
    found = _PIECE.findall(text)
    runs = [run for run, _ in found if run]
    counts = Counter(chain.from_iterable(runs))
    counts.update(map("".join, chain.from_iterable(map(pairwise, runs))))
    return counts, Counter(spelling for _, spelling in found if spelling)


def _folded(text: str) -> str:
    if text.isascii():
        return text
    simplified: str = _simplifier.convert(unicodedata.normalize("NFKC", text))
    return simplified


def _latin(word: str) -> Iterable[str]:
    if len(word) <= WORD_LENGTH_MAX:
        return _latin_words(word)
    return (one for part in _PART.findall(word) for one in _latin_words(part[:WORD_LENGTH_MAX]))


@lru_cache(100_000)
def _latin_words(word: str) -> tuple[str, ...]:
    folded = word.casefold()
    parts = _PART.findall(word)
    found = [folded] if parts != [word] else []
    if "." in folded:
        # `bar_baz` of `foo.bar_baz` is a name by itself.
        found += [name for name in folded.split(".") if not name.isalnum()]
    for part in parts:
        lower = part.casefold()
        if lower not in _STOP_WORDS:
            found.append(_stemmer.stemWord(lower))
        humps = _HUMP.findall(part) if part.isascii() else []
        if len(humps) > 1:
            found.extend(_stemmer.stemWord(hump.casefold()) for hump in humps if len(hump) > 1)
    return tuple(found)


@lru_cache(200_000)
def word_id(word: str) -> int:
    """The hash that stands for a word, 32 bits unsigned."""
    return zlib.crc32(word.encode())


def document_vector(text: str, headings: list[str], title: str) -> SparseVector:
    """BM25 weights of a chunk's words, those of its headings and of the note's title included."""
    counts, length = _frequencies(text)
    frequencies: dict[int, float] = dict(counts)
    for heading in headings:
        _add(frequencies, heading, HEADING_WEIGHT)
    if title not in headings:
        _add(frequencies, title, TITLE_WEIGHT)
    norm = K1 * (1 - B + B * length)
    weights = {frequency: round(frequency * (K1 + 1) / (frequency + norm), 4) for frequency in set(frequencies.values())}
    ordered = sorted(frequencies)
    return SparseVector(indices=ordered, values=[weights[frequencies[number]] for number in ordered])


def has_cjk(text: str) -> bool:
    """Whether Chinese, Japanese or Korean characters stand in it."""
    return _CJK_CHARACTER.search(text) is not None


def is_name(query: str) -> bool:
    """Whether it is one word (of Chinese, Japanese or Korean as long as one is), or has an identifier in it."""
    pieces = [found[0] for found in islice(_PIECE.finditer(_folded(query)), QUERY_WORDS_MAX)]
    if len(pieces) == 1 and (len(pieces[0]) <= CJK_WORD_LENGTH_MAX or not has_cjk(pieces[0])):
        return True
    return any(_IDENTIFIER.search(piece) for piece in pieces)


def query_vector(text: str) -> SparseVector:
    """A query's words, each once; of a very long query the first `QUERY_WORDS_MAX`."""
    found = dict.fromkeys(map(word_id, words(text)))
    ordered = sorted(islice(found, QUERY_WORDS_MAX))
    return SparseVector(indices=ordered, values=[1.0] * len(ordered))


def _add(frequencies: dict[int, float], text: str, weight: float) -> None:
    for number, count in _short_frequencies(text):
        frequencies[number] = frequencies.get(number, 0.0) + weight * count


@lru_cache(4096)
def _short_frequencies(text: str) -> tuple[tuple[int, int], ...]:
    """Of a heading or a title, which all chunks below it have."""
    return tuple(_frequencies(text)[0].items())

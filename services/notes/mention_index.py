r"""The titles and paths of one workspace's notes in memory, for the mention menu: searched whole at each key that is pressed. No I/O.

    NoteIndex    segments of up to 1024 notes, and the few that have changed last
    Segment      b"\nbrewing tea\nbuying tea\n…"      all titles as one run of bytes, latest note first; the paths likewise
                 "te": 0b11, "br": 0b01, …            for each pair of bytes the lines that have it, line feeds among them

Looking for a needle in a segment is an `and` of the bits of its pairs, and a look at the few lines that are left. Segments are taken from
the one with the latest note on, and no further than to where nothing later can come, each no further than it has later notes than those
that were found. A note that changes leaves its segment (it is marked as gone there) and joins those that changed last; they are made a
segment of when a question needs it.
"""

import heapq
import re
from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, batched, islice, pairwise, takewhile
from math import inf
from operator import or_

from services.notes.search_key import search_key

SEGMENT_NOTES_MAX = 1024
HEAD_NOTES_MAX = 256
# How many notes are looked at one by one, for each question.
LOOKS_MAX = 500
# Where more lines of a segment may have a needle, it is searched for, up to the last hit that is wanted.
SCANNED_ABOVE = 50
_SHORT = 30
FUZZY_LETTERS_MIN = 3


@dataclass(frozen=True, slots=True)
class IndexedNote:
    """What the menu shows of a note. `modified` in seconds since 1970."""

    path: str
    title: str
    modified: float


@dataclass(frozen=True, slots=True)
class Needle:
    """What is looked for: the search key, and its words, the longest first: it is the rarest most of the time."""

    key: bytes
    words: list[bytes]

    @classmethod
    def of(cls, key: str) -> "Needle":
        """For a search key."""
        return cls(key.encode(), [word.encode() for word in sorted(key.split(), key=len, reverse=True)])


class NoteIndex:
    """See the module."""

    def __init__(self) -> None:
        self._segments: dict[int, Segment] = {}
        self._next_serial = 0
        # Where each note is: serial of its segment and its place there, or the note itself where it changed lately.
        self._places: dict[str, tuple[int, int] | IndexedNote] = {}
        self._head: dict[str, IndexedNote] = {}
        self._head_segment: Segment | None = None

    def __len__(self) -> int:
        return len(self._places)

    def get(self, path: str) -> IndexedNote | None:
        """The note of that path (NFC)."""
        place = self._places.get(path)
        return self._segments[place[0]].notes[place[1]] if isinstance(place, tuple) else place

    def notes(self) -> Iterator[IndexedNote]:
        """All of them, in no order that means something."""
        for segment in self._segments.values():
            yield from (note for at, note in enumerate(segment.notes) if at not in segment.gone)
        yield from self._head.values()

    def put(self, *notes: IndexedNote) -> None:
        """Notes are there, or are others than before."""
        for note in notes:
            self.remove(note.path)
            self._places[note.path] = self._head[note.path] = note
        self._head_segment = None
        if len(self._head) > HEAD_NOTES_MAX:
            self._settle()

    def remove(self, path: str) -> None:
        """A note is there no more."""
        place = self._places.pop(path, None)
        if isinstance(place, tuple):
            self._segments[place[0]].gone.add(place[1])
        elif place is not None:
            del self._head[path]
            self._head_segment = None

    # Searching

    def latest(self, limit: int) -> list[IndexedNote]:
        """Whatever they are called, the latest first."""
        return self._merged(Segment.places, limit)

    def found(self, key: str, limit: int) -> list[IndexedNote]:
        """Whose title is the search key, begins with it, has it or all its words; then those whose path has it, or that have its words in
        title and path. The latest first among equals.
        """
        needle = Needle.of(key)
        ranked: dict[str, IndexedNote] = {}

        def take(notes: list[IndexedNote]) -> None:
            for note in notes:
                ranked.setdefault(note.path, note)

        holding = self._holding(needle, limit, in_path=False)
        if len(holding) < limit:
            holding.sort(key=lambda note: _rank(search_key(note.title), key))
        else:
            # Those that have it are too many to hold all that begin with it.
            for begin in (b"\n" + needle.key + b"\n", b"\n" + needle.key):
                take(self._merged(lambda segment, begin=begin: segment.titles.having(begin), limit))  # type: ignore[misc]
        take(holding)
        if len(ranked) < limit:
            take(self._holding(needle, limit, in_path=True))
        return list(ranked.values())[:limit]

    def resembling(self, key: str, limit: int) -> list[IndexedNote]:
        """Whose title has its letters in this order, the first of them at the beginning of a word; those first where they stand closest."""
        letters = key.replace(" ", "")
        if len(letters) < (FUZZY_LETTERS_MIN if key.isascii() else 2):
            return []
        resembling = Resembling(letters)
        found: list[tuple[int, float, str, IndexedNote]] = []
        for segment in self._all():
            found.extend((spread, -note.modified, note.path, note) for spread, note in segment.resembling(resembling))
        return [note for *_, note in heapq.nsmallest(limit, found)]

    def _holding(self, needle: Needle, limit: int, *, in_path: bool) -> list[IndexedNote]:
        if len(needle.words) < 2:
            return self._merged(lambda segment: (segment.paths if in_path else segment.titles).having(needle.key), limit)
        looks = Looks()
        return self._merged(lambda segment: segment.holding(needle.words, looks, in_path=in_path), limit)

    def _merged(self, hits: "Callable[[Segment], Iterable[int]]", limit: int) -> list[IndexedNote]:
        found: list[IndexedNote] = []
        horizon = -inf
        for segment in self._all():
            if segment.latest_modified < horizon:
                break
            if more := segment.living_notes(hits(segment), limit, horizon):
                found = sorted(found + more, key=_latest_first)[:limit] if found else more
            if len(found) == limit:
                horizon = found[-1].modified
        return found

    def _all(self) -> "list[Segment]":
        if self._head and self._head_segment is None:
            self._head_segment = Segment(list(self._head.values()), by_letters=False)
        segments = list(self._segments.values())
        if self._head_segment is not None:
            segments.append(self._head_segment)
        return sorted(segments, key=lambda segment: -segment.latest_modified)

    def _settle(self) -> None:
        """Make segments of what changed last, together with the smallest ones where there is room."""
        batch = list(self._head.values())
        self._head.clear()
        self._head_segment = None
        for serial in sorted(self._segments, key=lambda serial: self._segments[serial].living):
            segment = self._segments[serial]
            if len(batch) + segment.living > SEGMENT_NOTES_MAX:
                break
            batch += (note for at, note in enumerate(segment.notes) if at not in segment.gone)
            del self._segments[serial]
        for part in batched(sorted(batch, key=_latest_first), SEGMENT_NOTES_MAX):
            self._add_segment(list(part))

    def _add_segment(self, notes: list[IndexedNote]) -> None:
        segment = Segment(notes, by_letters=True)
        serial = self._next_serial
        self._next_serial += 1
        self._segments[serial] = segment
        self._places.update((note.path, (serial, at)) for at, note in enumerate(segment.notes))


def _rank(title: str, key: str) -> int:
    return 0 if title == key else 1 if title.startswith(key) else 2


def _latest_first(note: IndexedNote) -> tuple[float, str]:
    return -note.modified, note.path


class _Lines:
    """Keys of notes in one run of bytes, a line each, with a line feed before and behind.

    With `by_letters`, a bit for each line that has a letter of ASCII, and for each that has a pair of bytes, so that few have to be
    looked at.
    """

    def __init__(self, keys: list[bytes], *, by_letters: bool) -> None:
        self.text = b"\n" + b"\n".join(keys) + b"\n"
        self.starts = array("I", accumulate((len(key) + 1 for key in keys), initial=1))
        self._bits = _letters_and_pairs(keys) if by_letters else None
        self._all = (1 << len(keys)) - 1

    def line(self, at: int) -> bytes:
        """One of them."""
        return self.text[self.starts[at] : self.starts[at + 1] - 1]

    def having(self, needle: bytes) -> Iterator[int]:
        """Those that have the needle, which may hold the line feed before or behind."""
        bits, starts = self.bits(needle), self.starts
        if bits.bit_count() > SCANNED_ABOVE:
            return self._scanned(needle)
        return (at for at in ones(bits) if needle in self.text[starts[at] - 1 : starts[at + 1]])

    def bits(self, needle: bytes) -> int:
        """A bit for each line that may have the needle."""
        keys = _pairs(needle) or _letters(needle) if self._bits is not None else ()
        if not keys or self._bits is None:
            return reduce(or_, (1 << at for at in self._scanned(needle)), 0)
        bits = self._all
        for key in keys:
            if not (bits := bits & self._bits.get(key, 0)):
                break
        return bits

    def _scanned(self, needle: bytes) -> Iterator[int]:
        shift = needle.startswith(b"\n")
        position = self.text.find(needle)
        while position >= 0:
            at = bisect_right(self.starts, position + shift) - 1
            yield at
            position = self.text.find(needle, self.starts[at + 1] - 1)


def ones(bits: int) -> Iterator[int]:
    """The places of the ones, from the lowest."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _letters_and_pairs(keys: list[bytes]) -> dict[int, int]:
    """The bits of each letter and pair; of a few lines at a time, since short numbers are made quickly."""
    bits: defaultdict[int, int] = defaultdict(int)
    for first in range(0, len(keys), _SHORT):
        short: defaultdict[int, int] = defaultdict(int)
        for at, key in enumerate(keys[first : first + _SHORT]):
            bit = 1 << at
            for one in _letters(key) | _pairs(b"\n%s\n" % key):
                short[one] |= bit
        for one, some in short.items():
            bits[one] |= some << first
    return dict(bits)


def _letters(key: bytes) -> set[int]:
    return {letter for letter in key if 0x20 <= letter < 0x80}


def _pairs(key: bytes) -> set[int]:
    return {first << 8 | second for first, second in pairwise(key)}


@dataclass(slots=True)
class Looks:
    """How many notes may still be looked at one by one for a question."""

    left: int = LOOKS_MAX

    def take(self) -> bool:
        """Whether there is one more."""
        self.left -= 1
        return self.left >= 0


class Resembling:
    """Looks for letters in this order, the first of them at the beginning of a word."""

    def __init__(self, letters: str) -> None:
        self.looks = Looks()
        self.encoded = [letter.encode() for letter in letters]
        first, *others = map(re.escape, self.encoded)
        steps = b"".join(b"(?>.*?%s)" % letter for letter in others)
        self._pattern = re.compile(b"(?<![a-z0-9])" + first + steps, re.DOTALL)

    def spread(self, title: bytes) -> int | None:
        """How far they lie apart in a title's key; None where they are not there."""
        position = 0
        for letter in self.encoded:
            if (position := title.find(letter, position) + 1) == 0:
                return None
        found = self._pattern.search(title)
        return None if found is None else found.end() - found.start()


class Segment:
    """Notes, the latest first, which stay as they are but for those that have gone."""

    def __init__(self, notes: list[IndexedNote], *, by_letters: bool) -> None:
        self.notes = sorted(notes, key=_latest_first)
        self.latest_modified = self.notes[0].modified
        self.gone: set[int] = set()
        self.titles = _Lines([search_key(note.title).encode(errors="replace") for note in self.notes], by_letters=by_letters)
        self.paths = _Lines([search_key(note.path).encode(errors="replace") for note in self.notes], by_letters=by_letters)

    @property
    def living(self) -> int:
        """How many there are."""
        return len(self.notes) - len(self.gone)

    def places(self) -> Iterable[int]:
        """Of all notes, the latest first, those that have gone too."""
        return range(len(self.notes))

    def living_notes(self, places: Iterable[int], limit: int, horizon: float) -> list[IndexedNote]:
        """The first of these that have not gone and were not changed before the horizon."""
        living = (self.notes[at] for at in places if at not in self.gone)
        return list(islice(takewhile(lambda note: note.modified >= horizon, living), limit))

    def holding(self, words: list[bytes], looks: Looks, *, in_path: bool) -> Iterable[int]:
        """The places of those whose title, or title and path, have all these words."""
        texts = (self.titles, self.paths) if in_path else (self.titles,)
        bits = (1 << len(self.notes)) - 1
        for word in words:
            bits &= reduce(or_, (lines.bits(word) for lines in texts))
            if not bits:
                return ()
        looked_at = takewhile(lambda _: looks.take(), ones(bits))
        return (at for at in looked_at if all(self._has(at, word, texts) for word in words))

    def resembling(self, resembling: Resembling) -> Iterator[tuple[int, IndexedNote]]:
        """Those whose title has the letters, with how far they lie apart."""
        bits = (1 << len(self.notes)) - 1
        for letter in resembling.encoded:
            bits &= self.titles.bits(letter)
            if not bits:
                return
        for at in ones(bits):
            if not resembling.looks.take():
                break
            if at not in self.gone and (spread := resembling.spread(self.titles.line(at))) is not None:
                yield spread, self.notes[at]

    def _has(self, at: int, word: bytes, texts: tuple[_Lines, ...]) -> bool:
        return any(word in lines.line(at) for lines in texts)

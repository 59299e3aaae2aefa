r"""The titles and paths of one workspace's notes in memory, for the mention menu: searched whole at each key that is pressed. No I/O.

    NoteIndex    segments of up to 2048 notes, and the few that have changed last
    Segment      b"\nbrewing tea\nbuying tea\n…"      all titles as one run of bytes, latest note first; the paths likewise

Looking for a needle in a segment is one search for bytes, of which a line's position tells the note. Segments are taken from the one with
the latest note on, and no further than to where nothing later can come. A note that changes leaves its segment (it is marked as gone there)
and joins those that changed last; they are made a segment of when a question needs it.
"""

import heapq
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import batched, groupby, islice, takewhile

from services.notes.search_key import search_key

SEGMENT_NOTES_MAX = 2048
HEAD_NOTES_MAX = 256
# How many notes are looked at one by one, for each question.
LOOKS_MAX = 1000
FUZZY_LETTERS_MIN = 3
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789")
_FIRST_LETTERS = re.compile(rb"(?<![a-z0-9])[a-z0-9]")


@dataclass(frozen=True, slots=True)
class IndexedNote:
    """What the menu shows of a note. `modified` in seconds since 1970."""

    path: str
    title: str
    modified: float


@dataclass(frozen=True, slots=True)
class Needle:
    """What is looked for: the search key, and its words."""

    key: bytes
    words: list[bytes]

    @classmethod
    def of(cls, key: str) -> "Needle":
        """For a search key."""
        return cls(key.encode(), [word.encode() for word in key.split()])


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
        return self._merged(lambda segment: segment.latest(limit), limit)

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
                take(self._merged(lambda segment, begin=begin: segment.having(segment.titles, begin, limit), limit))  # type: ignore[misc]
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
            return self._merged(lambda segment: segment.having(segment.paths if in_path else segment.titles, needle.key, limit), limit)
        looks = Looks()
        return self._merged(lambda segment: segment.holding(needle.words, limit, looks, in_path=in_path), limit)

    def _merged(self, hits: "Callable[[Segment], list[IndexedNote]]", limit: int) -> list[IndexedNote]:
        found: list[IndexedNote] = []
        for segment in self._all():
            if len(found) == limit and found[-1].modified > segment.latest_modified:
                break
            if more := hits(segment):
                found = heapq.nsmallest(limit, found + more, key=_latest_first) if found else more[:limit]
        return found

    def _all(self) -> "list[Segment]":
        if self._head and self._head_segment is None:
            self._head_segment = Segment(list(self._head.values()))
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
        segment = Segment(notes)
        serial = self._next_serial
        self._next_serial += 1
        self._segments[serial] = segment
        self._places.update((note.path, (serial, at)) for at, note in enumerate(segment.notes))


def _rank(title: str, key: str) -> int:
    return 0 if title == key else 1 if title.startswith(key) else 2


def _latest_first(note: IndexedNote) -> tuple[float, str]:
    return -note.modified, note.path


class _Lines:
    """Keys of notes in one run of bytes, a line each, with a line feed before and behind."""

    def __init__(self, keys: list[bytes]) -> None:
        self.text = b"\n" + b"\n".join(keys) + b"\n"
        self.starts = array("I")
        start = 1
        for key in keys:
            self.starts.append(start)
            start += len(key) + 1
        self.starts.append(start)

    def line(self, at: int) -> bytes:
        """One of them."""
        return self.text[self.starts[at] : self.starts[at + 1] - 1]


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
        self.letters = letters
        self.looks = Looks()
        self._encoded = [letter.encode() for letter in letters]
        first, *others = map(re.escape, self._encoded)
        steps = b"".join(b"(?>.*?%s)" % letter for letter in others)
        self._pattern = re.compile(b"(?<![a-z0-9])" + first + steps, re.DOTALL)

    def spread(self, title: bytes) -> int | None:
        """How far they lie apart in a title's key; None where they are not there."""
        position = 0
        for letter in self._encoded:
            if (position := title.find(letter, position) + 1) == 0:
                return None
        found = self._pattern.search(title)
        return None if found is None else found.end() - found.start()


class Segment:
    """Notes, the latest first, which stay as they are but for those that have gone."""

    def __init__(self, notes: list[IndexedNote]) -> None:
        self.notes = sorted(notes, key=_latest_first)
        self.latest_modified = self.notes[0].modified
        self.gone: set[int] = set()
        titles = [search_key(note.title).encode(errors="replace") for note in self.notes]
        self.titles = _Lines(titles)
        self.paths = _Lines([search_key(note.path).encode(errors="replace") for note in self.notes])
        # For each letter, a bit for each note whose title has it, and has it at the beginning of a word.
        self._with_letter = dict.fromkeys(_LETTERS, 0)
        self._with_first = dict.fromkeys(_LETTERS, 0)
        for at, title in enumerate(titles):
            for letter in _LETTERS.intersection(title):
                self._with_letter[letter] |= 1 << at
            for first in set(_FIRST_LETTERS.findall(title)):
                self._with_first[first[0]] |= 1 << at

    @property
    def living(self) -> int:
        """How many there are."""
        return len(self.notes) - len(self.gone)

    def latest(self, limit: int) -> list[IndexedNote]:
        """The first that have not gone."""
        return list(islice((note for at, note in enumerate(self.notes) if at not in self.gone), limit))

    def having(self, lines: _Lines, needle: bytes, limit: int) -> list[IndexedNote]:
        """Whose line has the needle, which may hold the line feed before or behind."""
        return [self.notes[at] for at in islice(self._places(lines, needle), limit)]

    def holding(self, words: list[bytes], limit: int, looks: Looks, *, in_path: bool) -> list[IndexedNote]:
        """Whose title, or title and path, have all these words."""
        texts = (self.titles, self.paths) if in_path else (self.titles,)
        if not all(any(word in lines.text for lines in texts) for word in words):
            return []
        candidates = merge(*(self._places(lines, max(words, key=len)) for lines in texts))
        looked_at = takewhile(lambda _: looks.take(), (at for at, _ in groupby(candidates)))
        fitting = (at for at in looked_at if all(self._has(at, word, texts) for word in words))
        return [self.notes[at] for at in islice(fitting, limit)]

    def _has(self, at: int, word: bytes, texts: tuple[_Lines, ...]) -> bool:
        return any(word in lines.line(at) for lines in texts)

    def resembling(self, resembling: Resembling) -> Iterator[tuple[int, IndexedNote]]:
        """Those whose title has the letters, with how far they lie apart."""
        for at in self._with_letters(resembling.letters):
            if not resembling.looks.take():
                break
            if at not in self.gone and (spread := resembling.spread(self.titles.line(at))) is not None:
                yield spread, self.notes[at]

    def _with_letters(self, letters: str) -> Iterator[int]:
        """The notes that have all these letters in their titles."""
        bits = self._with_first.get(ord(letters[0]), (1 << len(self.notes)) - 1)
        for letter in letters:
            if letter.isascii() and ord(letter) in _LETTERS:
                bits &= self._with_letter[ord(letter)]
        if bits and (beyond := next((letter for letter in letters if not letter.isascii()), None)) is not None:
            yield from (at for at in self._places(self.titles, beyond.encode()) if bits >> at & 1)
            return
        while bits:
            lowest = bits & -bits
            yield lowest.bit_length() - 1
            bits ^= lowest

    def _places(self, lines: _Lines, needle: bytes) -> Iterator[int]:
        shift = needle.startswith(b"\n")
        position = lines.text.find(needle)
        while position >= 0:
            at = bisect_right(lines.starts, position + shift) - 1
            if at not in self.gone:
                yield at
            position = lines.text.find(needle, lines.starts[at + 1] - 1)

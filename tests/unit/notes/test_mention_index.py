"""The mention index against the plainest way of finding: look at every note."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.notes import mention_index
from services.notes.content_words import content_query, content_words
from services.notes.mention_index import IndexedNote, NoteIndex
from services.notes.search_key import search_key

TITLES = st.lists(
    st.sampled_from(["Tea", "tea", "Green", "Ｔｅａ", "绿茶", "水温", "é", " ", "-", "a", "b c", "\n", "😀"]), max_size=4
).map("".join)
PATHS = st.builds("{}/{}.md".format, st.sampled_from(["a", "tea", "绿"]), st.integers(0, 12))
NOTES = st.builds(IndexedNote, PATHS, TITLES, st.integers(0, 9).map(float))
QUERIES = st.sampled_from(
    ["tea", "t", "e", "绿", "绿茶", "水", "a", "b c", "c b", "green tea", "tea tea", "tea/1", ".md", "md tea", "zz", "\u0301"]
)


def by_looking_at_all(notes: list[IndexedNote], key: str) -> list[IndexedNote]:
    """What `found` promises, without a limit."""

    def rank(note: IndexedNote) -> int | None:
        title, path, words = search_key(note.title), search_key(note.path), key.split()
        if key in title or all(word in title for word in words):
            return 0 if title == key else 1 if title.startswith(key) else 2
        return 3 if all(word in title or word in path for word in words) or key in path else None

    ranked = [(found, -note.modified, note.path, note) for note in notes if (found := rank(note)) is not None]
    return [note for *_, note in sorted(ranked, key=lambda one: one[:3])]


class Index(RuleBasedStateMachine):
    """Notes come, change and go; the segments are small, so that they are made and merged all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.index = NoteIndex()
        self.notes: dict[str, IndexedNote] = {}

    @rule(notes=st.lists(NOTES, min_size=1, max_size=8))
    def put(self, notes: list[IndexedNote]) -> None:
        self.index.put(*notes)
        self.notes.update((note.path, note) for note in notes)

    @rule(path=PATHS)
    def remove(self, path: str) -> None:
        self.index.remove(path)
        self.notes.pop(path, None)

    @rule(query=QUERIES, limit=st.integers(1, 12))
    def find(self, query: str, limit: int) -> None:
        if key := search_key(query):
            assert self.index.found(key, limit) == by_looking_at_all(list(self.notes.values()), key)[:limit]

    @rule(limit=st.integers(1, 12))
    def latest(self, limit: int) -> None:
        assert self.index.latest(limit) == sorted(self.notes.values(), key=lambda note: (-note.modified, note.path))[:limit]

    @invariant()
    def holds_the_same(self) -> None:
        assert len(self.index) == len(self.notes)
        assert {note.path: note for note in self.index.notes()} == self.notes
        assert all(self.index.get(path) == note for path, note in self.notes.items())


@pytest.fixture(autouse=True, scope="module")
def _small_segments() -> None:
    patch = pytest.MonkeyPatch()
    patch.setattr(mention_index, "SEGMENT_NOTES_MAX", 4)
    patch.setattr(mention_index, "HEAD_NOTES_MAX", 2)


TestIndex = Index.TestCase
TestIndex.settings = settings(stateful_step_count=20)


def test_what_resembles_has_the_letters_in_order_and_the_closest_comes_first() -> None:
    index = NoteIndex()
    titles = ["Project plan", "Pragmatic journal", "My project", "Apropos jet", "Parking", "绿色的茶", "茶绿"]
    index.put(*(IndexedNote(f"{at}.md", title, float(at)) for at, title in enumerate(titles)))
    assert [note.title for note in index.resembling("prj", 9)] == ["My project", "Project plan", "Pragmatic journal"]
    assert [note.title for note in index.resembling("绿茶", 9)] == ["绿色的茶"]
    assert index.resembling("pr", 9) == []
    assert [note.title for note in index.resembling("pk g", 9)] == ["Parking"]


@pytest.mark.parametrize(
    ("text", "query", "is_found"),
    [
        ("Green TEA, brewed", "tea", True),
        ("Green TEA, brewed", "green brew", True),
        ("Green TEA, brewed", "bre", False),
        ("Green TEA, brewed", "brew green", False),
        ("Green tea", "gre tex", False),
        ("steam", "tea", False),
        ("冲泡绿茶的水温", "绿茶", True),
        ("冲泡绿茶的水温", "温", True),
        ("冲泡绿茶的水温", "茶绿", False),
        ("Ｃａｆé nx-7731", "cafe 7731", True),
        ("x", "x", False),
    ],
)
def test_words_are_found_by_their_beginnings_and_chinese_by_pairs(text: str, query: str, is_found: bool) -> None:
    terms = content_query(search_key(query))
    words = content_words(text)
    found = terms is not None and all(
        any(word.startswith(term[1:-3]) for word in words) if term.endswith(":*") else term[1:-1] in words for term in terms.split(" & ")
    )
    assert found == is_found


@given(st.text(max_size=60))
def test_no_word_can_mean_anything_in_a_query(text: str) -> None:
    words = content_words(text)
    assert all(word and not set(word) & set("' &|!():*\\\0") for word in words)
    terms = content_query(search_key(text))
    assert terms is None or all(term.strip("'*:") in "".join(search_key(text).split()) for term in terms.split(" & "))

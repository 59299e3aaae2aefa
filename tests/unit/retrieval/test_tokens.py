"""What counts as a word."""

import pytest

from services.retrieval.tokens import document_vector, query_vector, word_id, words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("running runs", ["run", "run"]),
        ("The cat", ["cat"]),
        ("数据库", ["数", "据", "库", "数据", "据库"]),
        ("用Python写", ["用", "python", "写"]),
        ("ＡＢＣ", ["abc"]),
        ("naïve", ["naïv"]),
        ("資料庫", ["资", "料", "库", "资料", "料库"]),
        ("２０２６年", ["2026", "年"]),
        ("", []),
        ("!? -- ...", []),
        ("- [ ] call her 📅 2026-12-01 ✅", ["call", "her", "📅", "2026-12-01", "2026", "12", "01", "✅"]),
        ("❤️🎉", ["❤", "🎉"]),
    ],
)
def test_words_of(text: str, expected: list[str]) -> None:
    assert list(words(text)) == expected


@pytest.mark.parametrize(
    ("identifier", "parts"),
    [
        ("NX-7731-b", {"nx-7731-b", "nx", "7731", "b"}),
        ("foo.bar_baz", {"foo.bar_baz", "foo", "bar", "baz"}),
        ("ConvertFromJson", {"convertfromjson", "convert", "from", "json"}),
        ("C#", {"c#", "c"}),
        ("c++", {"c++", "c"}),
    ],
)
def test_identifiers_are_whole_and_in_parts(identifier: str, parts: set[str]) -> None:
    assert parts <= set(words(f"before {identifier} after"))


def test_a_query_shares_words_with_the_text_whatever_the_form() -> None:
    text = set(document_vector("Ｄａｔａｂａｓｅｓ are indexed；向量检索", [], "").indices)
    for query in ("database", "DATABASE index", "检索", "向量"):
        assert set(query_vector(query).indices) <= text


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        # two-character words and whole sentences
        ("笔记检索需要向量数据库和倒排索引。", ["检索", "索引", "为什么笔记检索需要数据库？", "數據庫"]),
        # identifiers, whole and in parts
        (
            "Order NX-7731-b was shipped; see foo.bar_baz.",
            ["NX-7731-b", "nx-7731-B", "7731", "foo.bar_baz", "bar_baz", "ＮＸ－７７３１－ｂ"],
        ),
        # inflection
        ("The indexes were rebuilt while searching.", ["index", "indexing", "search", "searches"]),
        # mixed
        ("用Docker部署PostgreSQL数据库", ["docker 部署", "postgresql", "PostgreSQL数据库", "部署Docker"]),
    ],
)
def test_every_word_of_a_query_stands_in_a_text_that_has_it(text: str, queries: list[str]) -> None:
    for query in queries:
        wanted = [word for word in words(query) if word not in ("为", "什", "么", "为什", "什么", "么笔", "要数", "署d", "署do")]
        assert set(wanted) <= set(words(text)), query


def test_headings_and_title_are_searched_with_the_text() -> None:
    vector = document_vector("Body.", ["Installing"], "Handbook")
    weights = dict(zip(vector.indices, vector.values, strict=True))
    assert weights[word_id("instal")] > weights[word_id("handbook")] > 0


def test_word_ids_stay_what_they_are() -> None:
    # Stored in the tables and in the index: another hash would need a rebuild.
    assert (word_id("数据"), word_id("run")) == (1734835005, 1349952704)


def test_endless_runs_are_words_of_bounded_length() -> None:
    assert max(map(len, words("x" * 100_000))) <= 64
    assert max(map(len, words("a.b-" * 30_000))) <= 64
    assert max(map(len, words("数" * 10_000))) == 2

"""Reading what was composed gives back what was asked, whatever its texts hold; what cannot be said is refused (MD-2, MD-6)."""

from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from services.notes import front_matter, metadata
from services.notes.compose import compose
from shared.contracts.errors import ErrorCode, ServiceError
from shared.contracts.front_matter import split
from shared.contracts.markdown import CHARACTERS_MAX, DEPTH_MAX, NODES_MAX, Document, Preset
from tests.support import documents, markdown_reader
from tests.support.documents import REFERENCES

# Documents are deep: most of the time goes into generating them.
property_test = settings(
    max_examples=max(300, settings.default.max_examples),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)
ALL = Preset()

# What generated documents may come to by chance, and Markdown cannot say.
BY_CHANCE = (
    "would be read as one",
    "cannot begin or end with a line break",
    "cannot be the last in a paragraph",
    "is read as a block",
    "a backslash before a pipe",
    "must not be blank",
)


def composed(*blocks: Any, preset: Preset = ALL, **fields: Any) -> str:
    return compose(Document.model_validate({"blocks": list(blocks), **fields}), preset)


def refusal(*blocks: Any, preset: Preset = ALL, **fields: Any) -> tuple[str, str]:
    """Location and message of the refusal."""
    with pytest.raises(ServiceError) as caught:
        composed(*blocks, preset=preset, **fields)
    assert caught.value.code is ErrorCode.INVALID
    (error,) = caught.value.extra["errors"]
    return error["location"], error["message"]


def read_back(*blocks: Any) -> str:
    """The Markdown, which reads as the blocks."""
    markdown = composed(*blocks, references=REFERENCES)
    found, references = markdown_reader.read(markdown)
    assert found == markdown_reader.canonical(list(blocks), REFERENCES), markdown
    assert sorted(one["href"] for one in references.values()) == sorted(documents.LABELS.values())
    return markdown


def paragraph(*content: Any) -> dict[str, Any]:
    return {"type": "paragraph", "content": list(content)}


def bold(*content: Any) -> dict[str, Any]:
    return {"type": "bold", "content": list(content)}


def italic(*content: Any) -> dict[str, Any]:
    return {"type": "italic", "content": list(content)}


def struck(*content: Any) -> dict[str, Any]:
    return {"type": "strikethrough", "content": list(content)}


def code(text: str) -> dict[str, Any]:
    return {"type": "code", "text": text}


def link(*content: Any, target: str = "x.md", title: str | None = None) -> dict[str, Any]:
    return {"type": "link", "target": target, "title": title, "content": list(content)}


def math(tex: str) -> dict[str, Any]:
    return {"type": "math", "tex": tex}


def items(*blocks: Any, style: str = "bullet", start: int | None = None) -> dict[str, Any]:
    return {"type": "list", "style": style, "start": start, "items": list(blocks)}


def table(*rows: list[Any]) -> dict[str, Any]:
    return {"type": "table", "header": rows[0], "rows": list(rows[1:])}


BREAK = {"type": "break"}


@property_test
@given(documents.blocks(depth=2))
def test_reading_a_composed_document_gives_it_back(blocks: list[Any]) -> None:
    try:
        read_back(*blocks)
    except ServiceError as error:
        assert any(reason in error.detail for reason in BY_CHANCE), error.detail
        reject()


@property_test
@given(documents.contents(several=True), documents.contents(), documents.contents())
def test_reading_a_composed_content_gives_it_back_wherever_it_stands(content: Any, title: Any, cell: Any) -> None:
    callout = {"type": "callout", "kind": "note", "title": title, "fold": None, "blocks": [{"type": "paragraph", "content": content}]}
    places = [{"type": "paragraph", "content": content}, {"type": "heading", "level": 1, "content": title}, callout, table([cell, "x"])]
    for block in places:
        try:
            read_back(block)
        except ServiceError as error:
            assert any(reason in error.detail for reason in BY_CHANCE), error.detail


@given(
    st.lists(st.lists(st.sampled_from("ab*.。字 _\\`$😀"), max_size=2).map("".join), min_size=7, max_size=7),
    st.sampled_from("bis"),
    st.data(),
)
def test_emphasis_is_read_whatever_stands_beside_it(texts: list[str], outer: str, data: st.DataObject) -> None:
    make = {"b": bold, "i": italic, "s": struck}
    inner = data.draw(st.sampled_from([kind for kind in "bis" if kind != outer]))
    beside = data.draw(st.sampled_from("bis"))
    one, two, three, four, five, six, seven = texts
    assume(three and six)
    read_back(paragraph(one, make[outer](two, make[inner](three), four), five, make[beside](six), seven, "x"))


@given(st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn"))), st.lists(st.text(st.characters(categories=("L", "N")), min_size=1)))
def test_front_matter_is_read_as_it_was_given(title: str, tags: list[str]) -> None:
    title = title.strip() or "x"
    tags = [tag if not tag.isdigit() else f"t{tag}" for tag in tags]
    markdown = composed("text", front_matter={"title": title, "tags": tags})
    parts = split(markdown)
    assert parts.source is not None
    assert front_matter.parse(parts.source) == {"title": title, **({"tags": tags} if tags else {})}
    loaded = yaml.safe_load(parts.source)
    assert loaded == {"title": title, **({"tags": tags} if tags else {})}
    assert parts.body == "\ntext\n"


@pytest.mark.parametrize(
    "title",
    ["NO", "2026-01-01", "012", "~", "a: b", "- a", "# a", "'", '"', "...", "---", "{a}", "*a", "&a", "!!str a", "\\", "a #b", "😀"],
)
def test_titles_that_look_like_yaml_stay_titles(title: str) -> None:
    markdown = composed("text", front_matter={"title": title, "tags": ["yes", "a/b", "标签"]})
    assert metadata.extract(markdown, "x.md") == metadata.Metadata(title, ["yes", "a/b", "标签"])


MARKDOWN = {
    "text is never markup": (
        "# a *b* [c](d) <e> &amp; `f` $g$ | ==h==",
        "\\# a \\*b\\* \\[c\\](d) \\<e> &amp;amp; \\`f\\` \\$g\\$ \\| \\=\\=h\\=\\=\n",
    ),
    "ordinary text stays as it is": ("1.5 of C#, snake_case, 3 > 2 & so on: a-b = c!", "1.5 of C#, snake_case, 3 > 2 & so on: a-b = c!\n"),
    "lines that would begin blocks": ("- a\n+ b\n1. c\n> d\n===\n---", "\\- a\n\\+ b\n1\\. c\n\\> d\n\\=\\=\\=\n\\---\n"),
    "an underline of one column": ("a|\n:--", "a\\|\n\\:--\n"),
    "a heading that begins with a number": ({"type": "heading", "level": 2, "content": "1. Dough"}, "## 1. Dough\n"),
    "emphasis before a letter": (paragraph(bold("重点。"), "后"), "**重点。**&#21518;\n"),
    "emphasis within a word": (paragraph("这是", bold("重点"), "内容"), "这是**重点**内容\n"),
    "emphasis with white space at its ends": (paragraph("a", bold(" b "), "c"), "&#97;**&#32;b&#32;**&#99;\n"),
    "bold that is italic": (paragraph(bold(italic("a"))), "**_a_**\n"),
    "italic that is bold": (paragraph(italic(bold("a"))), "_**a**_\n"),
    "neighbours of one emphasis": (paragraph(bold("a"), "", bold("b")), "**ab**\n"),
    "an exclamation mark before a link": (paragraph("Look!", link("here")), "Look&#33;[here](x.md)\n"),
    "a callout's mark as a link": ({"type": "quote", "blocks": [paragraph(link("!note"))]}, "> [&#33;note](x.md)\n"),
    "digits around math": (paragraph("10", math("x"), "5"), "1&#48;$x$&#53;\n"),
    # GitHub's parser does not see the tildes when it looks what stands before the stars.
    "bold after what is struck through": (paragraph(struck("a"), bold("。b")), "~~&#97;~~**。b**\n"),
    "code with backticks and spaces": (paragraph(code("`a``b"), " ", code(" c "), " ", code(" d")), "``` `a``b ``` `  c  ` ` d`\n"),
    "a pipe in a cell": (table(["a|b", [code("c|d")]]), "| a\\|b | `c\\|d` |\n| --- | --- |\n"),
    # Many readers make a link of an address, backslashes included.
    "an address": ("see https://x.y/~user/#top, now", "see https://x.y/~user/#top, now\n"),
    "an address that holds emphasis": ("https://x.y/a*b*c", "https\\://x.y/a\\*b\\*c\n"),
    "two addresses that hold one": ("www.x.y/~a https://x.y/~b", "www\\.x.y/\\~a https\\://x.y/\\~b\n"),
    "an address before bold": (paragraph("https://x.y/a", bold("b")), "https\\://x.y/a**b**\n"),
    "a title that ends in a backslash": (paragraph(link("a", title="C:\\")), '[a](x.md "C:&#92;")\n'),
    "hidden characters": ("a\u202eb", "a&#8238;b\n"),
    "a target with spaces and brackets": (paragraph(link("a", target="My (b) <c>.md")), "[a](<My (b) \\<c\\>.md>)\n"),
    "a rule at the start of a note": ({"type": "rule"}, "***\n"),
    "a fence around a fence": ({"type": "code_block", "code": "```\nx\n```"}, "````\n```\nx\n```\n````\n"),
    "a nested list": (items("a", {"blocks": ["b", items("c")]}), "- a\n- b\n  - c\n"),
    "a nested list that cannot interrupt": (items({"blocks": ["b", items("c", style="ordered", start=3)]}), "- b\n\n  3. c\n"),
    "lists beside each other": ([items("a"), items("b"), items("c")], "- a\n\n+ b\n\n- c\n"),
    "a callout": (
        {"type": "callout", "kind": "tip", "fold": "closed", "title": "T", "blocks": ["a", items("b")]},
        "> [!tip]- T\n> a\n>\n> - b\n",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("blocks", "markdown"), MARKDOWN.values(), ids=MARKDOWN.keys())
def test_the_markdown_is_what_a_person_would_expect(blocks: Any, markdown: str) -> None:
    blocks = blocks if isinstance(blocks, list) else [blocks]
    assert composed(*blocks) == markdown
    read_back(*blocks)


REFUSED = {
    "nothing": ([], {}, "blocks"),
    "an empty paragraph": ([""], {}, "blocks.0"),
    "empty bold": ([paragraph("a", bold(""))], {}, "blocks.0.content.1"),
    "bold in bold": ([paragraph(bold("a", italic(bold("b"))))], {}, "blocks.0.content.0.content.1.content.0"),
    "a link in a link": ([paragraph(link(bold(link("a"))))], {}, "blocks.0.content.0.content.0.content.0"),
    "a link without a text": ([paragraph(link(""))], {}, "blocks.0.content.0"),
    "a line feed in a heading": ([{"type": "heading", "level": 1, "content": ["a\nb"]}], {}, "blocks.0.content.0"),
    "a break in a cell": ([table([["a", BREAK]])], {}, "blocks.0.header.0.1"),
    "a break at the end": ([paragraph("a", BREAK)], {}, "blocks.0.content.1"),
    "a blank line": (["a\n\nb"], {}, "blocks.0"),
    "unequal rows": ([table(["a", "b"], ["c", "d"], ["e"])], {}, "blocks.0.rows.1"),
    "unequal alignment": ([{"type": "table", "header": ["a"], "align": ["left", None]}], {}, "blocks.0.align"),
    "a table without columns": ([table([])], {}, "blocks.0.header"),
    "an escaped pipe in a cell": ([table([[code("\\|")]])], {}, "blocks.0.header.0"),
    "code of spaces": ([paragraph(code("  "))], {}, "blocks.0.content.0.text"),
    "code in two lines": ([paragraph(code("a\nb"))], {}, "blocks.0.content.0.text"),
    "code after code": ([paragraph(code("a"), code("b"))], {}, "blocks.0.content.1"),
    "a dollar in math": ([paragraph(math("a$b"))], {}, "blocks.0.content.0.tex"),
    "a blank line in math": ([math("a\n\nb")], {}, "blocks.0.tex"),
    "an unknown reference": ([paragraph({"type": "reference", "label": "x", "content": "a"})], {}, "blocks.0.content.0.label"),
    "a label twice": (["a"], {"references": [{"label": "Ab", "target": "x"}, {"label": "aB", "target": "y"}]}, "references.1.label"),
    "a footnote's label": (["a"], {"references": [{"label": "^1", "target": "x"}]}, "references.0.label"),
    "a script's target": ([paragraph(link("a", target="JavaScript:alert(1)"))], {}, "blocks.0.content.0.target"),
    "a data target": ([paragraph(link("a", target="data:text/html,x"))], {}, "blocks.0.content.0.target"),
    "a target without scheme": ([paragraph(link("a", target="//host/x"))], {}, "blocks.0.content.0.target"),
    "a target with a backslash": ([paragraph(link("a", target="/\\host"))], {}, "blocks.0.content.0.target"),
    "a target that hides": ([paragraph(link("a", target="a\u202eb"))], {}, "blocks.0.content.0.target"),
    "an image from elsewhere": ([paragraph({"type": "image", "target": "https://a.b/c.png"})], {}, "blocks.0.content.0.target"),
    "half a tag": ([paragraph({"type": "html", "html": "<b"})], {}, "blocks.0.content.0.html"),
    "a block at a line's start": ([paragraph({"type": "html", "html": "<div>"}, "a")], {}, "blocks.0.content"),
    "an open comment": ([{"type": "html", "html": "<!-- a"}], {}, "blocks.0.html"),
    "text as HTML": ([{"type": "html", "html": "a\n<b>"}], {}, "blocks.0.html"),
    "a carriage return": (["a\r\nb"], {}, "blocks.0"),
    "a control character": (["a\x1bb"], {}, "blocks.0"),
    "half a pair": (["a\ud800b"], {}, "blocks.0"),
    "a noncharacter": (["a\ufffeb"], {}, "blocks.0"),
    "a language that ends the line": ([{"type": "code_block", "code": "a", "language": "a b"}], {}, "blocks.0.language"),
    "a hidden diagram": ([{"type": "code_block", "code": "a", "language": "Mermaid"}], {}, "blocks.0.language"),
    "a list without items": ([items()], {}, "blocks.0.items"),
    "an item without blocks": ([items({"blocks": []})], {}, "blocks.0.items.0.blocks"),
    "a check mark in a bullet list": ([items({"blocks": ["a"], "checked": True})], {}, "blocks.0.items.0.checked"),
    "a start of a bullet list": ([items("a", start=3)], {}, "blocks.0.start"),
    "a number of ten digits": ([items("a", "b", style="ordered", start=999_999_999)], {}, "blocks.0.start"),
    "a task that is code": ([items({"blocks": [{"type": "rule"}]}, style="task")], {}, "blocks.0.items.0.blocks.0"),
    "a task's second block": ([items({"blocks": ["a", items("")]}, style="task")], {}, "blocks.0.items.0.blocks.1.items.0.blocks.0"),
    "an empty quote": ([{"type": "quote", "blocks": []}], {}, "blocks.0.blocks"),
    "an empty title": (["a"], {"front_matter": {"title": ""}}, "front_matter.title"),
    "a title in two lines": (["a"], {"front_matter": {"title": "a\nb"}}, "front_matter.title"),
    "a tag of two words": (["a"], {"front_matter": {"tags": ["a", "b c"]}}, "front_matter.tags.1"),
    "a tag of digits": (["a"], {"front_matter": {"tags": ["2026"]}}, "front_matter.tags.0"),
    "empty front matter": (["a"], {"front_matter": {}}, "front_matter"),
    "long front matter": (["a"], {"front_matter": {"title": "x" * 17_000}}, "front_matter"),
}  # fmt: skip


@pytest.mark.parametrize(("blocks", "fields", "location"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_written_is_refused_with_its_place(blocks: list[Any], fields: dict[str, Any], location: str) -> None:
    found, message = refusal(*blocks, **fields)
    assert (found, bool(message)) == (location, True)


# MD-6
@pytest.mark.parametrize(
    ("off", "block", "location"),
    [
        ("math", math("x"), "blocks.0"),
        ("math", paragraph("a", math("x")), "blocks.0.content.1"),
        ("diagrams", {"type": "mermaid", "code": "graph TD"}, "blocks.0"),
        ("callouts", {"type": "callout", "kind": "note"}, "blocks.0"),
    ],
)
def test_what_the_preset_has_switched_off_is_refused(off: str, block: Any, location: str) -> None:
    composed(block)
    found, message = refusal(block, preset=Preset(**{off: False}))
    assert (found, off in message) == (location, True)


def nested(depth: int, block: Any = "a") -> Any:
    for _ in range(depth - 1):
        block = {"type": "quote", "blocks": [block]}
    return block


def test_documents_are_bounded() -> None:
    read_back(nested(DEPTH_MAX))
    assert refusal(nested(DEPTH_MAX + 1))[0].count("blocks") == DEPTH_MAX + 1
    composed(*["a"] * NODES_MAX)
    composed("a" * CHARACTERS_MAX)
    lines = {"type": "code_block", "code": "\n" * (CHARACTERS_MAX - 1)}
    for blocks in (["a"] * (NODES_MAX + 1), ["a" * (CHARACTERS_MAX + 1)], [nested(4, lines)]):
        with pytest.raises(ServiceError) as caught:
            composed(*blocks)
        assert caught.value.code is ErrorCode.TOO_LARGE


def test_unknown_nodes_and_fields_are_refused_and_nothing_is_coerced() -> None:
    for block in (
        {"type": "video"},
        {"type": "rule", "x": 1},
        {"type": "heading", "level": "1", "content": "a"},
        1,
        None,
        {},
        {"type": []},
    ):
        with pytest.raises(ValueError, match="blocks"):
            Document.model_validate({"blocks": [block]})


def test_the_schema_is_small_and_holds_all_that_it_refers_to() -> None:
    schema = Document.model_json_schema()
    text = str(schema)
    assert len(text) < 12_000
    assert {part.split("'")[0] for part in text.split("#/$defs/")[1:]} == set(schema["$defs"])


@given(st.lists(documents.lines_text, min_size=1, max_size=3))
def test_text_becomes_neither_title_nor_tag_nor_front_matter_of_a_note(texts: list[str]) -> None:
    try:
        markdown = composed(*texts)
    except ServiceError as error:
        assert any(reason in error.detail for reason in BY_CHANCE), error.detail
        reject()
    assert metadata.extract(markdown, "x.md") == metadata.Metadata("x", [])
    assert split(markdown).source is None

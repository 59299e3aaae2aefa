import pytest

from local.demo_model.sentences import sentences, split


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("水开了。等五分钟！好了吗？“好了。”然后喝", ["水开了。", "等五分钟！", "好了吗？", "“好了。”", "然后喝"]),
        ("See e.g. Fig. 3 of v1.2 at https://a.example/x.md. Then Dr. Smith stops.", None),
        ("Run `a. B` first. Then stop.", ["Run `a. B` first.", "Then stop."]),
        ("He said “go.” She went.", ["He said “go.”", "She went."]),
    ],
)
def test_sentences_end_where_a_reader_sees_their_end(text: str, expected: list[str] | None) -> None:
    if expected is None:
        expected = ["See e.g. Fig. 3 of v1.2 at https://a.example/x.md.", "Then Dr. Smith stops."]
    assert split(text) == expected


def test_markdown_noise_is_left_out() -> None:
    note = (
        "---\ntitle: x\n---\n# Heading\n\nA **bold** [link](http://x.example) to [[Other note|another]] with `code`.[^1]\n\n"
        "> [!tip] A tip\n> worth it.\n\n<div>raw</div>\n\n- [ ] first task\n- second\n\n[^1]: foot\n"
    )
    assert list(sentences(note)) == [
        "A bold link to another with `code`.",
        "A tip worth it.",
        "first task",
        "second",
        "foot",
    ]


def test_a_table_row_names_its_columns() -> None:
    assert list(sentences("| tea | water |\n|---|---|\n| Longjing | 80 °C |\n")) == ["Longjing – water: 80 °C"]


def test_a_list_stays_with_the_sentence_that_introduces_it() -> None:
    assert list(sentences("Take along:\n\n- a pump\n- a tube.\n\nThen go.")) == ["Take along: a pump; a tube.", "Then go."]


def test_numbers_in_brackets_cannot_pass_for_citations() -> None:
    assert list(sentences("As shown [2] and 【1】 and [1, 2], not `[3]`.")) == ["As shown (2) and (1) and (1, 2), not `[3]`."]


def test_a_short_line_of_code_is_quoted_as_code() -> None:
    assert list(sentences("```sh\nexport MODEL_NAME=x\n```\n")) == ["`export MODEL_NAME=x`"]


def test_an_endless_sentence_is_clipped_with_its_code_closed() -> None:
    (only,) = sentences("word " * 60 + "`" + "code " * 60 + "`")
    assert only.endswith("…")
    assert only.count("`") % 2 == 0
    assert len(only) <= 421

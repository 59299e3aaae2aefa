"""The diff that a person approves (MD-5)."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from services.notes.unified_diff import NO_NEWLINE, unified_diff

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "- x", "+ y", " @@ -1 +1 @@", "d\r", "标题"]), max_size=40)
ENDS = st.sampled_from(["", "\n"])


def test_a_change_is_shown_with_three_lines_around_it() -> None:
    old = "".join(f"line {number}\n" for number in range(1, 21))
    new = old.replace("line 10\n", "line ten\n")
    assert (
        unified_diff(old, new, "Notes/a.md") == "--- a/Notes/a.md\n+++ b/Notes/a.md\n"
        "@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n-line 10\n+line ten\n line 11\n line 12\n line 13\n"
    )


def test_a_new_file_comes_from_nowhere() -> None:
    assert unified_diff(None, "a\nb", "n.md") == "--- /dev/null\n+++ b/n.md\n@@ -0,0 +1,2 @@\n+a\n+b\n\\ No newline at end of file\n"
    assert unified_diff(None, "", "n.md") == "--- /dev/null\n+++ b/n.md\n"


def test_a_final_newline_that_comes_or_goes_is_seen() -> None:
    assert "\\ No newline at end of file" in unified_diff("a\n", "a", "n.md")
    assert "\\ No newline at end of file" in unified_diff("a", "a\n", "n.md")
    assert unified_diff("a\n", "a\n", "n.md") == ""


def test_a_carriage_return_stands_where_it_stands_in_the_text() -> None:
    assert "-b\r\n+c\r\n" in unified_diff("a\r\nb\r\n", "a\r\nc\r\n", "n.md")


def test_a_word_in_a_long_note_makes_a_short_diff() -> None:
    old = "a line\n" * 300_000
    middle = len(old) // 2 // 7 * 7
    assert len(unified_diff(old, old[:middle] + "another line\n" + old[middle + 7 :], "n.md")) < 200
    # many differences are shown as one
    assert unified_diff(old, "b\n" * 3000, "n.md").count("@@") == 2


def with_ends(text: str) -> list[str]:
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def reading(diff: str, old: str) -> str:
    """What the diff makes of the old text, read as its format says."""
    before, after, position = with_ends(old), list[str](), 0
    for hunk in re.split(r"^@@ -", diff, flags=re.MULTILINE)[1:]:
        header, *lines = with_ends(hunk.replace("\n" + NO_NEWLINE, "\0\n"))
        numbers = re.match(r"(\d+)(?:,(\d+))? \+", header)
        assert numbers is not None
        start = int(numbers[1]) - (numbers[2] != "0")
        after += before[position:start]
        position = start
        for line in lines:
            mark, text = line[0], line[1:].replace("\0\n", "")
            if mark in " -":
                assert before[position] == text
                position += 1
            if mark in " +":
                after.append(text)
    return "".join(after + before[position:])


@given(old=LINES, new=LINES, old_end=ENDS, new_end=ENDS)
@settings(max_examples=300, deadline=None)
def test_it_makes_the_new_text_of_the_old(old: list[str], new: list[str], old_end: str, new_end: str) -> None:
    before, after = "\n".join(old) + old_end, "\n".join(new) + new_end
    diff = unified_diff(before, after, "n.md")
    assert bool(diff) == (before != after)
    assert reading(diff, before) == after

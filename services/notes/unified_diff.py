"""A change of a text as a unified diff that a person approves: exact to the last character, and quick for long texts.

`difflib` compares every line with every other; here only what lies between the first and the last line that differ is given to it, and
where that is much, it is shown as taken out and put in as a whole.
"""

from collections.abc import Iterator
from difflib import SequenceMatcher

CONTEXT_LINES = 3
COMPARED_LINES_MAX = 2000
NO_NEWLINE = "\\ No newline at end of file\n"

# One run of lines in the old and the new text: where it starts and ends in each.
type Block = tuple[int, int, int, int]


def unified_diff(old: str | None, new: str, path: str) -> str:
    """What makes `new` of `old`, in hunks with three lines of context; `old` None: there was no file. Lines end in LF; a carriage return
    before it stands in the diff as it stands in the text. Empty where nothing differs.
    """
    before, after = _lines(old or ""), _lines(new)
    hunks = list(_hunks(before, after))
    if not hunks and old is not None:
        return ""
    source = "/dev/null" if old is None else f"a/{path}"
    return f"--- {source}\n+++ b/{path}\n" + "".join(line for hunk in hunks for line in hunk)


def _lines(text: str) -> list[str]:
    lines = text.split("\n")
    return [*(f"{line}\n" for line in lines[:-1]), *([lines[-1]] if lines[-1] else [])]


def _hunks(before: list[str], after: list[str]) -> Iterator[list[str]]:
    group: list[Block] = []
    for block in _blocks(before, after):
        if group and block[0] - group[-1][1] > 2 * CONTEXT_LINES:
            yield _hunk(group, before, after)
            group = []
        group.append(block)
    if group:
        yield _hunk(group, before, after)


def _blocks(before: list[str], after: list[str]) -> list[Block]:
    """Where the texts differ."""
    start, shorter = 0, min(len(before), len(after))
    while start < shorter and before[start] == after[start]:
        start += 1
    end = 0
    while end < shorter - start and before[-1 - end] == after[-1 - end]:
        end += 1
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    if not old and not new:
        return []
    if len(old) + len(new) > COMPARED_LINES_MAX:
        return [(start, start + len(old), start, start + len(new))]
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(start + a, start + b, start + c, start + d) for tag, a, b, c, d in codes if tag != "equal"]


def _hunk(blocks: list[Block], before: list[str], after: list[str]) -> list[str]:
    """One hunk, its context included."""
    above = min(CONTEXT_LINES, blocks[0][0])
    below = min(CONTEXT_LINES, len(before) - blocks[-1][1])
    old_start, new_start = blocks[0][0] - above, blocks[0][2] - above
    old_end, new_end = blocks[-1][1] + below, blocks[-1][3] + below
    lines = [f"@@ -{_range(old_start, old_end)} +{_range(new_start, new_end)} @@\n"]
    position = old_start
    for old_from, old_to, new_from, new_to in blocks:
        lines += _marked(" ", before[position:old_from]) + _marked("-", before[old_from:old_to]) + _marked("+", after[new_from:new_to])
        position = old_to
    return lines + _marked(" ", before[position:old_end])


def _marked(mark: str, lines: list[str]) -> list[str]:
    return [f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n{NO_NEWLINE}" for line in lines]


def _range(start: int, end: int) -> str:
    """As diff programs write it: from line 1, the length left out where it is 1; of no lines, the line before."""
    length = end - start
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"

"""Which of the numbers in an answer are citations (ON-16).

The text is read as Markdown: a number counts where a reader sees it as text, not in code, links, images, HTML, escapes or footnotes.
"""

import re

from markdown_it import MarkdownIt
from markdown_it.token import Token

# [1]  [1, 2]  [1，2]  【1】; footnotes [^1] and wiki links [[1]] do not match.
MARKER = re.compile(r"(?<!\[)\[(\d{1,4}(?:\s{0,3}[,，、]\s{0,3}\d{1,4}){0,31})\](?!\])|【(\d{1,4}(?:\s{0,3}[,，、]\s{0,3}\d{1,4}){0,31})】")
NUMBER = re.compile(r"\d+")

_markdown = MarkdownIt("commonmark").enable("table").disable("text_join")  # joined text forgets what was escaped


def cited_numbers(text: str, known: frozenset[int] | set[int]) -> list[int]:
    """The known numbers that `text` cites, each once, in the order of first citation."""
    if not known or not any(character in text for character in "[【"):
        return []
    seen: dict[int, None] = {}
    for token in _markdown.parse(text):
        if token.type != "inline" or not token.children:
            continue
        for run in _visible_runs(token.children):
            for match in MARKER.finditer(run):
                for number in NUMBER.findall(match[1] or match[2]):
                    if int(number) in known:
                        seen.setdefault(int(number))
    return list(seen)


def _visible_runs(children: list[Token]) -> list[str]:
    """The stretches of plain text; whatever is not plain text parts them."""
    runs, depth = [""], 0
    for child in children:
        if child.type == "link_open":
            depth += 1
        elif child.type == "link_close":
            depth -= 1
        if child.type == "text" and not depth:
            runs[-1] += child.content
        elif runs[-1]:
            runs.append("")
    return runs


def without_numbers(text: str, names: dict[int, str]) -> str:
    """An earlier answer for the model to read again: its numbers become the names of their notes, so that they cannot be
    taken for the numbers of the answer to come (ON-13).
    """

    def replaced(match: re.Match[str]) -> str:
        found = [int(number) for number in NUMBER.findall(match[1] or match[2])]
        if not all(number in names for number in found):
            return match[0]
        return "".join(f"({names[number]})" for number in found)

    return MARKER.sub(replaced, text)

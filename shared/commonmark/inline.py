r"""Which markers in inline text stand there as text (CommonMark 0.31): in no code span, link, image, autolink, HTML tag or comment, and not
escaped.

Only what decides that is read; emphasis, for one, decides nothing. What decides nothing is skipped by patterns that never backtrack, and a
search that has failed in a block is not made again in it, so that the work grows with the text alone.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from shared.commonmark.blocks import InlineText
from shared.commonmark.grammar import BREAK, DESTINATION, LABEL, PUNCTUATION, SPACE, TITLE, autolink, normalized, tag

_ESCAPE = rf"\\[{PUNCTUATION}]?+"
_TICKS = re.compile(r"`++")
_TAG = re.compile(rf"{tag()}|{autolink()}")
# What begins with `<!` or `<?`, and where it ends.
_SEQUENCE = re.compile(r"<(?:!--(?P<empty>-?>)?|(?P<instruction>\?)|(?P<cdata>!\[CDATA\[)|(?P<declaration>![A-Za-z]))")
_SEQUENCE_ENDS = {None: "-->", "empty": "", "instruction": "?>", "cdata": "]]>", "declaration": ">"}
# What the patterns do not step over by themselves.
_LOOKED_FOR = re.compile(r"````|<[!?]")
_LABEL = re.compile(LABEL)
_TAIL = re.compile(rf"\({SPACE}*+(?:(?:{DESTINATION})(?:{SPACE}++(?:{TITLE}))?+{SPACE}*+)?+\)")


def _spans(inside: str) -> str:
    """Code spans between one, two or three backticks, of these characters. Longer ones are rare enough to be looked for one by one."""
    return "|".join(
        (
            rf"`(?!`)(?:{inside}++|``++)*+`(?!`)",
            rf"``(?!`)(?:{inside}++|`(?!`)|```++)*+``(?!`)",
            rf"```(?!`)(?:{inside}++|``?+(?!`)|````++)*+```(?!`)",
        )
    )


def _tokens(*, pairs: bool) -> re.Pattern[str]:
    """Text that changes nothing about brackets, up to `other`: what closes one, escapes one, or may step over some."""
    others = rf"\[\]{BREAK}"
    plain = rf"[^\\`<\[\]{BREAK}]"
    # Brackets around text that no link can follow.
    pair = rf"\[{plain}*+\](?!\()" if pairs else r"(?!)"
    return re.compile(
        rf"(?:{plain}++|(?!\\[!\[\]]){_ESCAPE}|(?:\[(?=\[))++|(?!{pair})\[|{_spans(f'[^`{others}]')}"
        rf"|{tag(others)}|{autolink(others)}|<(?![A-Za-z/!?]))*+(?:(?P<other>(?:{pair}(?:(?!!){plain})*+)++|[`<\]]|\\[!\[\]])|\Z)"
    )


# By whether brackets alone can make a link, because there are definitions.
_TOKENS = {False: _tokens(pairs=True), True: _tokens(pairs=False)}
_INLINE_TAIL = re.compile(r"\]\(")
_POSSIBLE_TAIL = re.compile(rf"\]\(|(?={LABEL})\[")


@dataclass(frozen=True, slots=True)
class Link:
    """Where a link or an image stands, and where what follows its brackets begins if that is in parentheses; -1 where it is a label."""

    start: int
    end: int
    parentheses: int
    is_image: bool


class MarkdownMarkers:
    """Finds markers of one form.

    `pattern` has no groups, begins with `[` or `【` and then a character that matches `inside`, and steps over no line end.
    """

    def __init__(self, pattern: str, inside: str) -> None:
        self._pattern = re.compile(pattern)
        # Where there are no links, a bracket that begins no marker means nothing.
        skipped = (
            rf"(?:[^\\`<\[【]++|{_ESCAPE}|[\[【](?!{inside})|{_spans(f'[^`{BREAK}]')}|`{{1,3}}+(?!`)"
            rf"|{tag()}|{autolink()}|<(?!!--|\?|!\[CDATA\[|![A-Za-z]))*+"
        )
        self._texts = re.compile(rf"{skipped}(?:({pattern})|[\[【]|\Z)")
        self._places = re.compile(rf"{skipped}(?:(?P<marker>{pattern})|(?P<other>`++|<)|[\[【]|\Z)")

    def texts(self, inline: InlineText) -> Iterator[str]:
        """The markers that a reader sees, in the order in which they appear first; some may come again."""
        for begin, end in self._beside_links(inline):
            if _LOOKED_FOR.search(inline.text, begin, end):
                yield from (found["marker"] for found in self._found(inline.text, begin, end))
            else:
                yield from filter(None, dict.fromkeys(self._texts.findall(inline.text, begin, end)))

    def find(self, inline: InlineText) -> Iterator[re.Match[str]]:
        """The markers that a reader sees, in order. In each match the group `marker` is the marker."""
        for begin, end in self._beside_links(inline):
            yield from self._found(inline.text, begin, end)

    def _beside_links(self, inline: InlineText) -> Iterator[tuple[int, int]]:
        position = 0
        for link in links(inline, self._pattern):
            if link.start > position and self._pattern.search(inline.text, position, link.start):
                yield position, link.start
            position = link.end
        yield position, len(inline.text)

    def _found(self, text: str, begin: int, end: int) -> Iterator[re.Match[str]]:
        block = _Block(text, end)
        while begin < end:
            for found in self._places.finditer(text, begin, end):
                if found.lastgroup == "marker":
                    yield found
                elif found.lastgroup == "other" and (begin := block.after(found.start("other"))) != found.end():
                    break
            else:
                return


def links(inline: InlineText, wanted: re.Pattern[str]) -> Iterator[Link]:
    """The links and images of the blocks that hold something wanted, in order, those within another one not."""
    text, end = inline.text, 0
    labels = frozenset(label for label in set(_LABEL.findall(text)) if normalized(label) in inline.labels) if inline.labels else frozenset()
    for position in _tails(text, labels):
        if position < end:
            continue
        begin = text.rfind(BREAK, end, position) + 1 or end
        end = text.find(BREAK, position)
        end = len(text) if end < 0 else end
        if wanted.search(text, begin, end):
            yield from _Brackets(text, begin, end, labels).links()


def _tails(text: str, labels: frozenset[str]) -> Iterator[int]:
    """Where what makes a link of brackets may stand."""
    if labels:
        return (found.start() for found in _POSSIBLE_TAIL.finditer(text) if found[1] is None or found[1] in labels)
    return (found.start() for found in _INLINE_TAIL.finditer(text))


class _Block:
    """The block around a position, and what is known not to follow there."""

    def __init__(self, text: str, end: int) -> None:
        self._text = text
        self._text_end = end
        self._end = 0
        self._missing: set[str] = set()
        self._last_ticks: dict[int, int] | None = None

    def after(self, position: int) -> int:
        """Behind the code span, the tag or the like that begins here; behind the one character or the backticks where none does."""
        if position >= self._end:
            end = self._text.find(BREAK, position, self._text_end)
            self._end = self._text_end if end < 0 else end
            self._missing.clear()
            self._last_ticks = None
        return self._after_code(position) if self._text[position] == "`" else self._after_html(position)

    def _after_code(self, position: int) -> int:
        ticks = _TICKS.match(self._text, position, self._end)
        assert ticks is not None
        if self._last_ticks is None:
            self._last_ticks = {found.end() - found.start(): found.start() for found in _TICKS.finditer(self._text, position, self._end)}
        length = ticks.end() - position
        if self._last_ticks.get(length, -1) <= position:
            return ticks.end()
        return next(found.end() for found in _TICKS.finditer(self._text, ticks.end(), self._end) if found.end() - found.start() == length)

    def _after_html(self, position: int) -> int:
        sequence = _SEQUENCE.match(self._text, position, self._end)
        if sequence is None:
            found = _TAG.match(self._text, position, self._end)
            return position + 1 if found is None else found.end()
        terminator = _SEQUENCE_ENDS[sequence.lastgroup]
        if terminator in self._missing:
            return position + 1
        end = self._text.find(terminator, sequence.end(), self._end)
        if end < 0:
            self._missing.add(terminator)
            return position + 1
        return end + len(terminator)


class _Brackets:
    """The brackets of one block, and the links and images that they make."""

    def __init__(self, text: str, begin: int, end: int, labels: frozenset[str]) -> None:
        self._text = text
        self._begin = begin
        self._end = end
        self._labels = labels
        # Stretches of text in which every `[` is an open bracket.
        self._stretches: list[tuple[int, int]] = []
        # No link holds another one: brackets before this one only make images.
        self._inactive_before = 0

    def links(self) -> list[Link]:
        """In order, those within another one not."""
        links: list[Link] = []
        tokens, block, position = _TOKENS[bool(self._labels)], _Block(self._text, self._end), self._begin
        while position < self._end:
            found = tokens.match(self._text, position, self._end)
            assert found is not None
            at = found.start("other")
            if at < 0:
                break
            if self._text.find("[", position, at) >= 0:
                self._stretches.append((position, at))
            other = self._text[at]
            if other != "]":
                position = found.end() if other in "[\\" else block.after(at)
                continue
            position = at + 1
            if (link := self._closed(at)) is not None:
                while links and links[-1].start > link.start:
                    links.pop()
                links.append(link)
                position = link.end
        return links

    def _closed(self, closer: int) -> Link | None:
        """The link or image that ends with this closing bracket and what follows it."""
        while self._stretches:
            begin, end = self._stretches.pop()
            opener = self._text.rfind("[", begin, end)
            if opener < 0:
                continue
            self._stretches.append((begin, opener))
            is_image = opener > begin and self._text[opener - 1] == "!"
            if not is_image and opener < self._inactive_before:
                return None
            if tail := _TAIL.match(self._text, closer + 1, self._end):
                end, parentheses = tail.end(), closer + 1
            elif (end := self._label(opener, closer)) < 0:
                return None
            else:
                parentheses = -1
            if not is_image:
                self._inactive_before = opener
            return Link(opener, end, parentheses, is_image)
        return None

    def _label(self, opener: int, closer: int) -> int:
        """Where the link ends whose text these brackets are and whose target is defined elsewhere; -1 where they are no link's."""
        after = closer + 1
        if not self._labels:
            return -1
        if self._text.startswith("[", after):
            if label := _LABEL.match(self._text, after, self._end):
                return label.end() if label[1] in self._labels else -1
            if self._text.startswith("[]", after):
                after += 2
        label = _LABEL.match(self._text, opener, closer + 1)
        return after if label is not None and label.end() == closer + 1 and label[1] in self._labels else -1

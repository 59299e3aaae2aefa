r"""The parts of CommonMark 0.31 that blocks and inline text share, as patterns.

None of them backtracks (hence the possessive `*+` and `++`), and none steps over a BREAK.
"""

# Stands between blocks of inline text. A NUL in a text counts as U+FFFD, as CommonMark has it.
BREAK = "\0"
LABEL_CHARACTERS_MAX = 999
DESTINATION_PARENTHESES_MAX = 32

PUNCTUATION = r"!-/:-@\[-`{-~"
SPACE = r"[ \t\n]"
LABEL = rf"\[((?:[^\[\]\\{BREAK}]|\\[^{BREAK}]){{1,{LABEL_CHARACTERS_MAX}}}+)\]"
TITLE = rf""""(?:[^"\\{BREAK}]++|\\[^{BREAK}])*+"|'(?:[^'\\{BREAK}]++|\\[^{BREAK}])*+'|\((?:[^()\\{BREAK}]++|\\[^{BREAK}])*+\)"""


def tag(without: str = BREAK) -> str:
    """An opening or a closing HTML tag that holds none of these characters."""
    value = rf"""[^\x00-\x20"'=<>`{without}]++|'[^'{without}]*+'|"[^"{without}]*+\""""
    attribute = rf"{SPACE}++[A-Za-z_:][A-Za-z0-9_.:-]*+(?:{SPACE}*+={SPACE}*+(?:{value}))?+"
    return rf"<(?:[A-Za-z][A-Za-z0-9-]*+(?:{attribute})*+{SPACE}*+/?+>|/[A-Za-z][A-Za-z0-9-]*+{SPACE}*+>)"


def autolink(without: str = BREAK) -> str:
    """An address in angle brackets that holds none of these characters."""
    host = "(?![A-Za-z0-9-]{64})[A-Za-z0-9]++(?:-++[A-Za-z0-9]++)*+"
    return (
        rf"<(?:[A-Za-z][A-Za-z0-9+.-]{{1,31}}:[^\x00-\x20<>{without}]*+"
        rf"|[A-Za-z0-9.!#$%&'*+/=?^_`{{|}}~-]++@{host}(?:\.{host})*+)>"
    )


def _destination() -> str:
    plain = rf"(?:[^\x00-\x20\x7f()\\]++|\\[{PUNCTUATION}]?+)*+"
    nested = plain
    for _ in range(DESTINATION_PARENTHESES_MAX):
        nested = rf"{plain}(?:\({nested}\){plain})*+"
    return rf"<(?:[^<>\n\\{BREAK}]++|\\[^\n{BREAK}])*+>|(?=[^\x00-\x20\x7f<)]){nested}"


DESTINATION = _destination()


def normalized(label: str) -> str:
    """A label as labels are compared: neither case nor the kind of white space matters."""
    return " ".join(label.split()).casefold()

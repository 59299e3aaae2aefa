"""The words of a note's text, as the mention menu finds them: whole ones, of the last a beginning is enough, and pairs of CJK characters.

PostgreSQL keeps them per note as a `tsvector`, whose index finds beginnings, too; so no file is read while somebody types.
"""

import re
from collections.abc import Iterator
from itertools import islice, pairwise

from services.notes.search_key import search_key

# What of a long note is taken in. A tsvector holds at most a megabyte.
CHARACTERS_MAX = 400_000
WORDS_MAX = 20_000
WORD_CHARACTERS_MAX = 40
# A shorter word is not looked for; a shorter beginning stands for too many words.
LETTERS_MIN = 3
BEGINNING_LETTERS_MIN = 4
QUERY_WORDS_MAX = 8

_CJK = "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
_PIECE = re.compile(rf"([{_CJK}]+)|([^\W_{_CJK}]+)")
_RUN = re.compile(f"[{_CJK}]+")
# The beginnings of words.
_WORD = re.compile(rf"([^\W_{_CJK}]{{1,{WORD_CHARACTERS_MAX}}})[^\W_{_CJK}]*")
# Makes spaces of what is between words of ASCII; many times as fast as to look for the words.
_BETWEEN_WORDS = {code: " " for code in range(128) if not chr(code).isalnum()}


def content_words(text: str) -> list[str]:
    """The distinct words of a note."""
    text = text[:CHARACTERS_MAX]
    if text.isascii():
        return list(islice(_ascii_words(text), WORDS_MAX))
    # Most of a text is said more than once.
    tokens = dict.fromkeys(text.split())
    found = _ascii_words(" ".join(filter(str.isascii, tokens)))
    if other := search_key(" ".join(token for token in tokens if not token.isascii())):
        found.update(dict.fromkeys(_WORD.findall(other)))
        for run in _RUN.findall(other):
            found.update(dict.fromkeys(map("".join, pairwise(run))))
            found[run[-1]] = None
    return list(islice(found, WORDS_MAX))


def _ascii_words(text: str) -> dict[str, None]:
    found = dict.fromkeys(text.casefold().translate(_BETWEEN_WORDS).split())
    if max(map(len, found), default=0) > WORD_CHARACTERS_MAX:
        found = dict.fromkeys(word[:WORD_CHARACTERS_MAX] for word in found)
    return found


def content_query(key: str) -> str | None:
    """The `tsquery` for a search key: every word of it, and whatever begins with the last; None where it is too little to look for."""
    pieces = _PIECE.findall(key)
    terms = list(dict.fromkeys(term for at, piece in enumerate(pieces, 1 - len(pieces)) for term in _terms(*piece, is_last=at == 0)))
    return " & ".join(terms[:QUERY_WORDS_MAX]) or None


def _terms(run: str, word: str, *, is_last: bool) -> Iterator[str]:
    if len(run) > 1:
        yield from (f"'{first}{second}'" for first, second in pairwise(run))
    elif run:
        yield f"'{run}':*"
    elif len(word) >= LETTERS_MIN:
        beginning = ":*" if is_last and len(word) >= BEGINNING_LETTERS_MIN else ""
        yield f"'{word[:WORD_CHARACTERS_MAX]}'{beginning}"

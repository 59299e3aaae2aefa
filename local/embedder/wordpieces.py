"""Cuts texts into BERT's word pieces, without case and accents: each word into the longest known pieces from its beginning.

`wordpieces.txt` is the vocabulary of the uncased BERT models, by the Google AI Language Team, under the Apache License 2.0; its line
numbers are the pieces' numbers.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_CJK}]|[^\W_{_CJK}]+|[^\w\s]|_")
_WORD_LENGTH_MAX = 100


class WordPieces:
    """Text to numbers of pieces."""

    def __init__(self) -> None:
        lines = Path(__file__).with_suffix(".txt").read_text("utf-8").split("\n")
        self._numbers = {piece: number for number, piece in enumerate(lines) if piece}
        self.begin, self.end, self._unknown = (self._numbers[mark] for mark in ("[CLS]", "[SEP]", "[UNK]"))
        self._pieces_of = lru_cache(50_000)(self._cut)

    def numbers(self, text: str) -> list[int]:
        """The pieces of a text in order, without marks of its ends."""
        plain = "".join(character for character in unicodedata.normalize("NFD", text.lower()) if unicodedata.category(character) != "Mn")
        return [number for word in _WORD.findall(plain) for number in self._pieces_of(word)]

    def _cut(self, word: str) -> tuple[int, ...]:
        if len(word) > _WORD_LENGTH_MAX:
            return (self._unknown,)
        try:
            return tuple(self._longest(word))
        except KeyError:
            return (self._unknown,)

    def _longest(self, word: str) -> Iterator[int]:
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            end = next((end for end in range(len(word), start, -1) if mark + word[start:end] in self._numbers), None)
            if end is None:
                raise KeyError(word)
            yield self._numbers[mark + word[start:end]]
            start = end

"""The bundled model: two small ones side by side, since none found in a package is good at Chinese and at English.

multilingual-e5-small reads every text. all-MiniLM-L6-v2 reads those in Latin script, at which it is better. A vector is both of theirs,
each by the root of its share, so that the product of two vectors is the weighted mean of the two models' own. A passage that only the first
has read has the second's share in a coordinate of its own, so that it is as long as the others and gains nothing by it.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import batched
from typing import NamedTuple

import numpy as np
from opencc import OpenCC

from local.embedder import e5_file, minilm_file
from local.embedder.transformer import Floats, Transformer
from local.embedder.unigrams import Unigrams
from local.embedder.wordpieces import WordPieces

NAME = "multilingual-e5-small+all-minilm-l6-v2"
DIMENSION = 769
_WIDTH = 384

# MiniLM's cosines spread three times as far as E5's.
_MINILM_SHARE = 0.3
# What MiniLM was trained to read; of a longer passage the rest is E5's alone.
_MINILM_TOKENS_MAX = 254

# The inner states of more no longer fit the processor's caches.
_TOKENS_AT_ONCE = 512

_simplifier = OpenCC("t2s")
_KANA = re.compile(r"[\u3040-\u30ff]")
_LATIN = re.compile(r"[a-zA-Z\u00c0-\u024f]")
# A character that is a word by itself, or more than a letter.
_OTHER = re.compile(r"[\u0370-\U0003ffff]")
# An English word has some five letters.
_LETTERS_PER_WORD = 5

type _Part = tuple[int, tuple[int, ...]]


class InputType(StrEnum):
    """What a text is: E5 was trained with a different prefix for each."""

    QUERY = "query"
    PASSAGE = "passage"


class Encoded(NamedTuple):
    """A unit vector (`DIMENSION` float32) and how many tokens the first model read for it."""

    vector: Floats
    tokens: int


class Model:
    """Both models in memory. Threads may share it."""

    def __init__(self) -> None:
        file = e5_file.E5File(e5_file.bundled())
        pieces = file.pieces
        self._e5 = file.transformer()
        self._e5_ends = pieces.begin, pieces.end
        self._e5_tokens_max = file.tokens_max - len(self._e5_ends)
        self._unigrams = Unigrams(pieces)
        self._minilm = minilm_file.MiniLmFile(minilm_file.bundled()).transformer()
        self._wordpieces = WordPieces()

    def encode(self, texts: Sequence[str], kind: InputType) -> list[Encoded]:
        """Several texts, in this thread."""
        # Half a surrogate pair is no text.
        texts = [text.encode("utf-8", errors="replace").decode("utf-8") for text in texts]
        vectors = np.zeros((len(texts), DIMENSION), np.float32)
        numbers = [self._unigrams.numbers(f"{kind}: {_simplified(text)}") for text in texts]
        # A text that is longer than the model reads at once is read in parts, weighted by their lengths.
        parts = [(at, part) for at, text in enumerate(numbers) for part in batched(text, self._e5_tokens_max)]
        vectors[:, :_WIDTH] = _means(self._e5, self._e5_ends, parts, len(texts)) * (1 - _MINILM_SHARE) ** 0.5
        latin = [at for at, text in enumerate(texts) if _is_latin(text)]
        pieces = ((at, tuple(self._wordpieces.numbers(texts[at])[:_MINILM_TOKENS_MAX])) for at in latin)
        ends = self._wordpieces.begin, self._wordpieces.end
        vectors[:, _WIDTH : 2 * _WIDTH] = _means(self._minilm, ends, pieces, len(texts)) * _MINILM_SHARE**0.5
        if kind is InputType.PASSAGE:
            vectors[[at for at in range(len(texts)) if at not in latin], -1] = _MINILM_SHARE**0.5
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return [Encoded(vector, len(text) + len(self._e5_ends)) for vector, text in zip(vectors, numbers, strict=True)]


def _simplified(text: str) -> str:
    """E5 has seen far more of simplified Chinese than of traditional. Japanese has both kinds of characters, and stays."""
    if text.isascii() or _KANA.search(text):
        return text
    simplified: str = _simplifier.convert(text)
    return simplified


def _is_latin(text: str) -> bool:
    letters, others = len(_LATIN.findall(text)), len(_OTHER.findall(text))
    return letters > 0 and letters > _LETTERS_PER_WORD * others


def _means(model: Transformer, ends: tuple[int, int], parts: Iterable[_Part], texts: int) -> Floats:
    """A unit vector for each text, from its parts; zero for one without any."""
    means = np.zeros((texts, _WIDTH), np.float32)
    begin, end = ends
    for group in _grouped(parts):
        found = model.means([(begin, *part, end) for _, part in group])
        for (at, part), mean in zip(group, found, strict=True):
            means[at] += mean * max(len(part), 1)
    lengths = np.linalg.norm(means, axis=1, keepdims=True)
    return np.divide(means, lengths, out=means, where=lengths > 0)


def _grouped(parts: Iterable[_Part]) -> Iterator[list[_Part]]:
    """Together what has about `_TOKENS_AT_ONCE`."""
    group: list[_Part] = []
    size = 0
    for at, part in parts:
        if group and size + len(part) > _TOKENS_AT_ONCE:
            yield group
            group, size = [], 0
        group.append((at, part))
        size += len(part)
    if group:
        yield group

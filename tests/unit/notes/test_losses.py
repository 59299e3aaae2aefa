"""A vault that vanishes is an outage, not a mass deletion (docs/adr/0010)."""

import pytest

from services.notes.losses import PERSISTING_SECONDS, Loss, problem

LATER = PERSISTING_SECONDS


@pytest.mark.parametrize(
    "loss",
    [
        Loss(100, 0, 100, same_directory=False),
        Loss(100, 20, 80, same_directory=True),  # a fifth
        Loss(20, 10, 10, same_directory=True),  # few
        Loss(1, 1, 0, same_directory=True),
        Loss(10, 10, 0, same_directory=True),
        Loss(100, 60, 40, same_directory=True, seconds=LATER),
        Loss(100, 20, 80, same_directory=False),
        Loss(11, 11, 1, same_directory=True, seconds=LATER),  # someone has put a new note there
    ],
    ids=repr,
)
def test_believed(loss: Loss) -> None:
    assert problem(loss) is None


@pytest.mark.parametrize(
    "loss",
    [
        Loss(100, 21, 79, same_directory=True),
        Loss(100, 21, 79, same_directory=True, seconds=LATER - 1),
        Loss(100, 21, 79, same_directory=False, seconds=LATER),
        Loss(11, 11, 0, same_directory=True, seconds=LATER * 100),  # everything: never by itself
        Loss(1, 1, 0, same_directory=False),  # an empty mount point
        Loss(4, 1, 3, same_directory=False),
    ],
    ids=repr,
)
def test_held_to_be_an_outage(loss: Loss) -> None:
    assert problem(loss) is not None

"""Where an answer goes: into an inbox, and nowhere else.

The server lets whoever is asked answer wherever the question says (`allow_responses`), with the rights of the one who answers. Without this
check a question whose answer is to go to `$JS.API.STREAM.DELETE.NOTES` would delete the stream.
"""

import logging

from shared.messaging.permissions import INBOXES

logger = logging.getLogger(__name__)


def answerable(reply: str) -> bool:
    """Whether a question is to be worked on, by where it wants its answer. One that JetStream has passed on for somebody has no inbox."""
    if reply.startswith(INBOXES):
        return True
    logger.warning("A question was dropped: its answer was to go to %s, which is no inbox", reply or "nobody")
    return False

"""Noticing that a client has left: ASGI tells it only to whoever keeps receiving."""

from starlette.types import Receive


async def client_left(receive: Receive) -> None:
    """Returns once the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass

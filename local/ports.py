"""Free TCP ports for the servers that the stack starts."""

import errno
import os
import random
import socket
from pathlib import Path

from local.errors import StartError

_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 20_000
_ATTEMPTS = 200
_NOT_HERE = {errno.EADDRNOTAVAIL, socket.EAI_NONAME}


def free_port(preferred: int | None = None) -> int:
    """A port of 127.0.0.1 that nobody listens on: `preferred` where it is free, else a random one.

    Random ones lie below the kernel's range for outgoing connections. In that range a client that keeps reconnecting
    to a server that has died can be given the very port as its own, and then the server cannot have it back.
    """
    if preferred is not None and _is_free("127.0.0.1", preferred):
        return preferred
    highest = max(_LOWEST + 1000, min(32_768, _first_ephemeral_port()))
    for _ in range(_ATTEMPTS):
        port = random.randrange(_LOWEST, highest)  # noqa: S311 - no secret
        if _is_free("127.0.0.1", port):
            return port
    raise StartError(f"no free TCP port between {_LOWEST} and {highest} on 127.0.0.1")


def require_free(host: str, port: int) -> None:
    """Raises `StartError` where `host:port` cannot be listened on."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        raise StartError(_refusal(host, port, error)) from error


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is taken by another program; set MARGINALIA_PORT to a free one"
    if error.errno in _NOT_HERE:
        return f"{host} is no address of this machine; set MARGINALIA_HOST to one"
    return f"cannot listen on {host}:{port}: {os.strerror(error.errno) if error.errno else error}"


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen()
        except OSError:
            return False
    return True


def _first_ephemeral_port() -> int:
    try:
        return int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768

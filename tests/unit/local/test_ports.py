import socket

import pytest

from local.errors import StartError
from local.ports import free_port, require_free


def test_a_taken_port_is_refused_with_the_variable_to_set() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(StartError, match=rf"^port {port} on 127\.0\.0\.1 is taken .* MARGINALIA_PORT"):
            require_free("127.0.0.1", port)
        assert free_port(preferred=port) != port


def test_an_earlier_port_is_kept_where_it_is_free() -> None:
    port = free_port()
    assert free_port(preferred=port) == port
    require_free("127.0.0.1", port)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(StartError, match="is no address of this machine"):
        require_free("192.0.2.1", 8080)

"""One server-sent event on the wire."""

# Legal in JSON and in a stream's line, but many a client splits lines there, as Unicode has it.
_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))


def event_frame(identifier: int, event: str, data: bytes) -> bytes:
    """A frame with an id and a type; `data` is JSON in UTF-8."""
    return b"id: %d\nevent: %b\n%b" % (identifier, event.encode(), data_frame(data))


def data_frame(data: bytes) -> bytes:
    """A frame of JSON in UTF-8, on one line for every reader."""
    if not data.isascii():
        for character, escaped in _LINE_ENDS:
            data = data.replace(character, escaped)
    return b"data: %b\n\n" % data

"""Finding the payloads in the bytes of a stream."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.payloads import LINE_CHARACTERS_MAX, MalformedStream, PayloadReader

LINE = st.text(alphabet=st.characters(blacklist_characters="\r\n", blacklist_categories=("Cs",)), min_size=1)


def read(pieces: list[bytes]) -> list[str]:
    reader = PayloadReader()
    return [payload for piece in pieces for payload in reader.feed(piece)] + reader.close()


def test_payloads_are_found_however_the_bytes_are_cut() -> None:
    stream = '\ufeffdata: {"a":"é漢"}\r\n\r\n: a comment\nevent: x\ndata:no space\r\rdata:\ndata: \t\n\ndata: last'.encode()
    for size in range(1, len(stream) + 1):
        assert read([stream[start : start + size] for start in range(0, len(stream), size)]) == ['{"a":"é漢"}', "no space", "last"], size


@given(st.lists(LINE, max_size=5), st.data())
def test_any_payloads_survive_any_cutting(payloads: list[str], data: st.DataObject) -> None:
    stream = "".join(f"data: {payload}\n\n" for payload in payloads).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert read(pieces) == [payload for payload in payloads if not payload.isspace()]


def test_bytes_that_are_not_text_are_malformed() -> None:
    with pytest.raises(MalformedStream):
        PayloadReader().feed(b"data: \xff\n")


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_without_end_is_given_up(end: bytes) -> None:
    piece = b"x" * (LINE_CHARACTERS_MAX // 8)
    with pytest.raises(MalformedStream, match="too long"):
        read([*[piece] * 8, piece + end])

"""One sequence of bytes for one value."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.contexts.canonical_json import canonical, sha256


def test_keys_are_sorted_and_nothing_is_escaped_that_need_not_be() -> None:
    value = {"b": [1, True, None], "a": 'é\n\u2028\x7f\x01"\\/中', "\U0001f600": 1, "\ufb33": 2}
    assert canonical(value) == '{"a":"é\\n\u2028\x7f\\u0001\\"\\\\/中","b":[1,true,null],"\U0001f600":1,"\ufb33":2}'
    assert sha256({}) == "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"


@pytest.mark.parametrize(
    ("bits", "text"),
    # from RFC 8785, appendix B
    [
        ("0000000000000000", "0"),
        ("8000000000000000", "0"),
        ("0000000000000001", "5e-324"),
        ("7fefffffffffffff", "1.7976931348623157e+308"),
        ("4340000000000000", "9007199254740992"),
        ("4430000000000000", "295147905179352830000"),
        ("44b52d02c7e14af5", "9.999999999999997e+22"),
        ("44b52d02c7e14af6", "1e+23"),
        ("444b1ae4d6e2ef4e", "999999999999999700000"),
        ("444b1ae4d6e2ef50", "1e+21"),
        ("3eb0c6f7a0b5ed8c", "9.999999999999997e-7"),
        ("3eb0c6f7a0b5ed8d", "0.000001"),
        ("41b3de4355555557", "333333333.33333343"),
        ("becbf647612f3696", "-0.0000033333333333333333"),
        ("43143ff3c1cb0959", "1424953923781206.2"),
    ],
)
def test_numbers_are_written_as_ecmascript_writes_them(bits: str, text: str) -> None:
    (number,) = struct.unpack(">d", bytes.fromhex(bits))
    assert canonical(number) == text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=20), inner, max_size=5),
        max_leaves=20,
    )
)
def test_it_reads_as_the_value(value: object) -> None:
    assert json.loads(canonical(value), parse_int=float) == value  # numbers are doubles


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), {1, 2}, b"", 2**53 + 1, -(2**60)])
def test_what_json_has_nothing_for_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical(value)

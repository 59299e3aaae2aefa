"""Reading a conversation in parts that messages can carry."""

import json

from services.agent.conversations import PART_BYTES_MAX, _fitting


def test_a_part_holds_no_more_bytes_than_it_may_whatever_letters_its_diffs_have() -> None:
    row = {"content": "", "thinking": "", "tool_calls": [{"approval": {"diff": "字" * 1_000_000}}]}
    fitting = _fitting([row] * 5)  # type: ignore[list-item]  # a row is read like a dict
    size = len(json.dumps(row, ensure_ascii=False).encode())
    assert 1 < len(fitting) <= PART_BYTES_MAX / size

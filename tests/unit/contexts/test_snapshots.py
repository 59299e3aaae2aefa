"""Snapshots and archives of them: they agree with themselves, or are refused (RC-10, RC-16, RC-17)."""

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from services.contexts import archive, legacy_snapshot
from services.contexts.archive import ArchiveInvalid
from services.contexts.canonical_json import sha256
from services.contexts.snapshot import SnapshotInvalid, check, labels, parse, prepared
from tests.unit.contexts.evidence import candidate, named, request, response, verified

LEGACY = Path(__file__).resolve().parents[4] / "shared" / "cases" / "legacy-contexts" / "snapshots.jsonl"


def snapshot(*ranks: int, **fields: Any) -> dict[str, Any]:
    candidates = [candidate(rank, note=f"n{rank}") for rank in ranks]
    return prepared(
        request(**fields), verified(*candidates), id_=named(f"{ranks}"), account=named("a"), created_at=datetime(2026, 1, 2, tzinfo=UTC)
    )


def legacy(**completion: Any) -> dict[str, Any]:
    """A record as the version before wrote them."""
    record = {
        "id": str(named(f"{completion}")),
        "kind": "prepared_request",
        "model_called": False,
        "status": "prepared",
        "reason": "candidates_available",
        "prompt_version": "evidence-v0",
        "question": "多少？",
        "instructions": "Cite [E1].",
        "completion": {"model": "m", "output_tokens": 512, "token_parameter": "max_tokens", "instruction_role": "system", **completion},
        "evidence": [{"label": "E1", "title": "蜂", "text": "九千只", "source_url": None}],
    }
    body = legacy_snapshot.request_body(record)
    return {**record, "request_body": body, "request_sha256": sha256(body)}


def test_a_snapshot_says_what_was_prepared_and_that_no_model_was_asked() -> None:  # RC-10
    record = snapshot(1, 2)
    check(record)
    assert (record["kind"], record["model_called"], record["status"], record["created_at"]) == (
        "prepared_request",
        False,
        "prepared",
        "2026-01-02T00:00:00Z",
    )
    assert labels(record) == {"E1", "E2"}
    assert json.loads(json.dumps(record)) == record


def test_without_evidence_there_is_no_body() -> None:  # RC-7
    record = snapshot()
    check(record)
    assert (record["request_body"], record["request_sha256"], record["input_characters"]) == (None, None, 0)


@pytest.mark.parametrize(
    "damage",
    [
        lambda record: record.update(model_called=True),
        lambda record: record.update(kind="answer"),
        lambda record: record.update(query="Another?"),
        lambda record: record.update(request_sha256="0" * 64),
        lambda record: record.update(request_body=None, request_sha256=None),
        lambda record: record.update(status="insufficient_evidence"),
        lambda record: record.update(prompt_version="marginalia-evidence-v9"),
        lambda record: record["evidence"][0].update(text="Knead for two minutes."),
        lambda record: record["evidence"][0].update(label="E2"),
        lambda record: record["evidence"].pop(),
        lambda record: record["completion"].update(output_tokens=1024),
        lambda record: record["request_body"].update(stream=0),
        lambda record: record["request_body"].update(tools=[]),
        lambda record: record.update(input_characters=7),
        lambda record: record.update(completion=None),
        lambda record: record.update(id="no uuid"),
        lambda record: record.update(id=record["id"].upper()),
        lambda record: record.update(reason="no_candidates"),
        lambda record: record.update(max_evidence=1),
        lambda record: record.update(created_at="yesterday"),
        lambda record: record.update(excluded=[{"chunk_id": record["id"], "reason": "taste"}]),
        lambda record: record.pop("excluded"),
        lambda record: record.pop("created_by"),
        lambda record: record.pop("text_publication"),
        lambda record: record.pop("retrieval_run_id"),
        lambda record: record["evidence"][0].pop("knowledge_id"),
        lambda record: record["completion"].update(top_p=1),
        lambda record: record.update(evidence={}),
    ],
)
def test_a_snapshot_that_was_changed_is_noticed(damage: Callable[[dict[str, Any]], None]) -> None:  # RC-17
    record = copy.deepcopy(snapshot(1, 2))
    damage(record)
    with pytest.raises(SnapshotInvalid):
        check(record)


@pytest.mark.parametrize(
    "completion", [{}, {"temperature": 0.2}, {"token_parameter": "max_completion_tokens", "instruction_role": "developer"}]
)
def test_a_snapshot_of_the_format_before_is_rebuilt_and_checked(completion: dict[str, Any]) -> None:  # RC-16
    record = legacy(**completion)
    check(record)
    assert record["request_body"]["messages"][0]["role"] == record["completion"]["instruction_role"]
    record["completion"]["output_tokens"] = 513
    with pytest.raises(SnapshotInvalid):
        check(record)


@pytest.mark.skipif(not LEGACY.exists(), reason="the recorded legacy snapshots are not beside this checkout")
def test_recorded_snapshots_of_the_format_before_have_their_hashes() -> None:  # RC-16
    lines = LEGACY.read_text().splitlines()
    assert len(lines) == 9
    for line in lines:
        check(json.loads(line))


def test_each_protocol_has_its_parser_and_they_never_mix() -> None:  # RC-16
    completion = {
        "id": "c",
        "object": "chat.completion",
        "model": "m",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "九千 [E1]"}}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }
    assert parse(legacy(), completion).outcome == "answer_candidate"
    assert parse(legacy(), response()).reason == "not_a_chat_completion"
    assert parse(snapshot(1), completion).reason == "not_a_response"
    assert parse(snapshot(1), response()).outcome == "answer_candidate"
    for choice, expected in (
        ({"finish_reason": "length"}, "incomplete"),
        ({"finish_reason": "content_filter"}, "refused"),
        ({"finish_reason": None}, "rejected"),
        ({"message": {"role": "assistant", "content": None, "refusal": "No."}}, "refused"),
        ({"message": {"role": "assistant", "content": "x [E1]", "tool_calls": [{}]}}, "rejected"),
        ({"message": None}, "rejected"),
    ):
        changed = {**completion, "choices": [{**completion["choices"][0], **choice}]}  # type: ignore[index]
        assert parse(legacy(), changed).outcome == expected


def written(*records: dict[str, Any]) -> bytes:
    lines = [archive.line(record) for record in records]
    return "".join(f"{line}\n" for line in [archive.manifest(lines), *lines]).encode()


def test_an_archive_of_both_formats_reads_as_it_was_written() -> None:  # RC-17
    records = [snapshot(1), legacy(), snapshot()]
    lines = archive.read(written(*records))
    assert [json.loads(line) for line in lines] == records
    assert "".join(f"{line}\n" for line in [archive.manifest(lines), *lines]).encode() == written(*records)


def test_a_line_is_kept_as_it_is_though_we_would_write_it_otherwise() -> None:  # RC-17
    lines = [json.dumps(legacy(), indent=None)]
    data = f"{archive.manifest(lines)}\n{lines[0]}\n".encode()
    assert archive.read(data) == lines


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data + b"{}\n",
        lambda data: data.replace(b"E1", b"E2"),
        lambda data: data.split(b"\n", 1)[1],
        lambda data: b"",
        lambda data: b"\xff" + data,
        lambda data: data.replace(b'"records":2', b'"records":1'),
    ],
)
def test_an_archive_that_is_not_whole_is_refused(damage: Callable[[bytes], bytes]) -> None:  # RC-17
    with pytest.raises(ArchiveInvalid):
        archive.read(damage(written(snapshot(1), legacy())))


def test_an_archive_whose_record_does_not_agree_with_itself_is_refused_by_its_line() -> None:  # RC-17
    broken = snapshot(1)
    broken["request_sha256"] = "0" * 64
    with pytest.raises(ArchiveInvalid, match="line 3: its hash"):
        archive.read(written(legacy(), broken))
    with pytest.raises(ArchiveInvalid, match="stands twice"):
        archive.read(written(legacy(), legacy()))


@pytest.mark.parametrize(
    ("beginning", "said"),
    [
        ('{"query":"Another?",', "one key twice"),
        ('{"note":1e400,', "too large"),
        ('{"note":' + "9" * 5000 + ",", "too large"),
        ('{"note":18446744073709551616,', "too large"),
        ('{"note":NaN,', "NaN"),
        ('{"note":"\\u0000",', "NUL"),
        ('{"note":"\\ud800",', "surrogate"),
        ('{"note":' + "[" * 200 + "]" * 200 + ",", "too deep"),
        ('{"note":' + "[" * 100_000 + "]" * 100_000 + ",", "too deep"),
        ("\ufeff{", "no JSON"),
    ],
)
def test_a_record_that_readers_would_understand_differently_or_not_at_all_is_refused(beginning: str, said: str) -> None:  # RC-17
    line = archive.line(snapshot(1))
    hostile = beginning + line.removeprefix("{")
    with pytest.raises(ArchiveInvalid, match=f"line 2.*{said}"):
        archive.read(f"{archive.manifest([hostile])}\n{hostile}\n".encode())


@pytest.mark.parametrize("damage", [lambda data: b"\xef\xbb\xbf" + data, lambda data: data.replace(b"\n", b"\r\n")])
def test_an_archive_that_an_editor_has_saved_otherwise_is_refused(damage: Callable[[bytes], bytes]) -> None:  # RC-17
    with pytest.raises(ArchiveInvalid):
        archive.read(damage(written(snapshot(1))))


def test_a_record_that_no_message_could_carry_is_refused() -> None:  # RC-17
    with pytest.raises(ArchiveInvalid, match="line 2 has more than"):
        archive.read(written({**snapshot(1), "note": "x" * archive.LINE_CHARACTERS_MAX}))


def test_a_field_that_is_not_known_is_kept() -> None:  # RC-17
    record = {**snapshot(1), "note": {"by": "somebody"}}
    assert [json.loads(line) for line in archive.read(written(record))] == [record]

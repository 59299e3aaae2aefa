"""The whole system's traces and logs, as its processes wrote them (OP-1)."""

import json
import socket
from pathlib import Path
from typing import Any

from shared.telemetry.vocabulary import ATTRIBUTES
from tests.support.local_stack import LocalStack, local_stack
from tests.support.polling import eventually
from tests.support.scripted_provider import Script, ScriptedProvider, answer, calls, tool_calls
from tests.support.traces import ExportedSpan, Trace, by_trace, read_files

# Words that stand in notes and chats alone: whoever finds one of them elsewhere has found a leak.
SECRETS = ("quicksilverheron", "marmaladeotter", "velvetbadger", "cobaltlynx", "saffronibis", "umberfinch")
NOTE = f"""---
tags: [{SECRETS[0]}]
---
# About the {SECRETS[1]}

The {SECRETS[2]} sleeps at noon.
"""
TURN = "invoke_agent marginalia"


def turn_of(home: Path, turn_id: str) -> Trace:
    (trace,) = [
        trace for trace in by_trace(read_files(home)) if any(span.attributes.get("marginalia.turn.id") == turn_id for span in trace.spans)
    ]
    return trace


async def has_vectors(stack: LocalStack) -> bool:
    """Whether every note is searchable by meaning."""
    status = (await stack.client.http.get("/api/retrieval/status")).json()
    return bool(status["pending"] == 0 and status["unembedded"] == 0 and status["indexed"] > 0)


def hops(trace: Trace) -> set[tuple[str, str]]:
    """Which service asked which."""
    by_id = {span.id: span for span in trace.spans}
    return {(by_id[span.parent].service, span.service) for span in trace.spans if span.parent is not None}


async def test_one_question_is_one_tree_over_every_process_down_to_the_stores(tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "tea.md").write_text("# Tea\n\nGreen tea is brewed at 80 °C for two minutes.\n")
    async with local_stack(tmp_path / "home", {"MARGINALIA_VAULTS": str(vault)}) as stack:
        await eventually(lambda: has_vectors(stack), 60)
        turn = await stack.client.ask("How hot is the water for green tea?")
        assert turn.done["cited"]
    trace = turn_of(tmp_path / "home", turn.started["turn_id"])
    assert trace.root.name == "POST /api/chat"
    assert hops(trace) >= {("gateway", "agent"), ("agent", "retrieval"), ("retrieval", "notes"), ("retrieval", "index"), ("agent", "agent")}
    (search,) = trace.named("execute_tool rag.search")
    assert trace.path(trace.one("retrieval")) == [
        *trace.path(trace.one(TURN)), search.name, "send retrieval.search", "process retrieval.search", "retrieval",
    ]  # fmt: skip
    below = {(span.service, span.name) for span in trace.below(trace.one("retrieval"))}
    assert {("index", "search points"), ("notes", "process notes.workspace.list"), ("retrieval", "SELECT chunks")} <= below
    (embedding,) = [span for span in trace.spans if span.name.startswith("embeddings ")]
    assert (embedding.kind, embedding.attributes["marginalia.inputs"]) == ("CLIENT", 1)
    databases = {(span.service, span.attributes["db.system.name"]) for span in trace.spans if "db.system.name" in span.attributes}
    assert databases >= {(name, "postgresql") for name in ("gateway", "agent", "retrieval", "notes")} | {("index", "qdrant")}
    for span in trace.spans:
        assert span.attributes.keys() <= set(span.type.attributes)
    only_children_after_parents(trace)


def only_children_after_parents(trace: Trace) -> None:
    """All processes are of one machine here, so a child begins no earlier than its parent."""
    by_id = {span.id: span for span in trace.spans}
    for span in trace.spans:
        if span.parent is not None:
            assert span.start >= by_id[span.parent].start


def told(home: Path, spans: list[ExportedSpan]) -> dict[str, str]:
    """Everything that the system says of itself, by where."""
    texts = {f"span {span.name}": "\n".join(span.texts) for span in spans}
    texts |= {path.name: path.read_text("utf-8", "replace") for path in (home / "logs").iterdir()}
    texts |= {path.name: path.read_text("utf-8", "replace") for path in (home / "traces").iterdir()}
    texts["supervisor"] = (home.parent / f"{home.name}-supervisor.log").read_text("utf-8", "replace")
    return texts


async def say_it_everywhere(stack: LocalStack, provider: ScriptedProvider) -> list[str]:
    """The secret words on every way through the system, good and bad; the ids of the turns."""
    (workspace,) = (await stack.client.http.get("/api/workspaces")).json()["items"]
    http = stack.client.http
    refusal = {"error": {"message": f"The question about the {SECRETS[3]} is refused", "type": "invalid_request_error"}}
    scripts: list[tuple[Script, ...]] = [
        (calls(SECRETS[1], f"{SECRETS[2]} at noon"), answer(f"The {SECRETS[2]} sleeps [1].", thinking=f"{SECRETS[3]}?")),
        (Script(status=400, body=refusal),),
        (Script([b"data: {" + SECRETS[3].encode() + b"\n\n"]),),
        (calls(SECRETS[4], name=SECRETS[4]), tool_calls(("rag_search", {"words": SECRETS[4]})), answer("So.")),
    ]
    turns = []
    for script in scripts:
        provider.next(*script)
        turns.append((await stack.client.ask(f"Tell me of the {SECRETS[3]}", workspace=workspace["id"])).started["turn_id"])
    create = {"path": "New.md", "markdown": f"The {SECRETS[5]}."}
    provider.next(tool_calls(("notes_create", create), text=f"{SECRETS[5]}, then."), answer("Done."))
    turn = await stack.client.ask(f"Write of the {SECRETS[5]}", mode="agent", workspace=workspace["id"], allowed_tools=["notes.create"])
    turns.append(turn.started["turn_id"])
    bodies: list[tuple[str, Any]] = [
        ("/api/retrieval/runs", {"mode": "hybrid", "query": f"{SECRETS[1]} {SECRETS[4]}"}),
        ("/api/retrieval/runs", {"mode": SECRETS[4], "query": SECRETS[4]}),
        ("/api/chat", {"message": 1, "more": SECRETS[4]}),
        ("/api/chat", {"message": f"\0{SECRETS[4]}"}),
        ("/v1/chat/completions", {"model": "scripted", "messages": [{"role": SECRETS[4], "content": SECRETS[4]}]}),
        ("/api/markdown/compose", {"document": {"nodes": [{"type": SECRETS[4]}]}}),
    ]
    for path, body in bodies:
        await http.post(path, json=body)
    note = f"/api/workspaces/{workspace['id']}/notes/other.md"
    for condition in ({"if-none-match": "*"}, {"if-none-match": "*"}, {"if-match": '"0"'}):
        await http.put(note, json={"content": f"# {SECRETS[1]}\n\n{SECRETS[2]}\n"}, headers=condition)
    return turns


async def test_no_text_of_a_note_or_a_chat_is_in_any_span_or_log_line(tmp_path: Path, provider: ScriptedProvider) -> None:
    # OP-1, ON-14
    home, vault = tmp_path / "home", tmp_path / "vault"
    vault.mkdir()
    (vault / "animals.md").write_text(NOTE)
    variables = {"MARGINALIA_VAULTS": str(vault), "MODEL_BASE_URL": provider.base_url, "MODEL_NAME": "scripted", "MODEL_API_KEY": "k"}
    async with local_stack(home, variables) as stack:
        await stack.searchable()
        turns = await say_it_everywhere(stack, provider)
        # Not only good ways: the database goes, and what was to be stored is refused.
        await stack.kill("postgres")
        await stack.client.http.post("/api/retrieval/runs", json={"mode": "hybrid", "query": SECRETS[1]})
        await stack.ready()
    spans = read_files(home)
    assert {span.attributes.get("marginalia.turn.id") for span in spans} >= set(turns)
    assert any(secret in json.dumps(exchange.body) for exchange in provider.exchanges for secret in SECRETS)
    for where, text in told(home, spans).items():
        for secret in SECRETS:
            assert secret not in text.lower(), f"{secret} in {where}"
    assert {key for span in spans for key in span.attributes} <= ATTRIBUTES.keys()


async def test_each_line_of_a_service_that_works_on_a_request_has_the_id_of_its_trace(tmp_path: Path, provider: ScriptedProvider) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    variables = {"MARGINALIA_VAULTS": str(vault), "MODEL_BASE_URL": "http://127.0.0.1:1/v1", "MODEL_NAME": "m"}
    async with local_stack(tmp_path / "home", variables) as stack:
        turn = await stack.client.ask("Hi")
        assert turn.done["status"] == "failed"

        async def lines() -> list[str]:
            log = (tmp_path / "home" / "logs" / "agent.log").read_text("utf-8")
            return [line for line in log.splitlines() if "cannot be reached" in line]

        said = await eventually(lines)
    trace = turn_of(tmp_path / "home", turn.started["turn_id"])
    assert said
    assert all(f"trace={trace.root.trace} " in line for line in said)


async def test_a_collector_that_takes_connections_and_never_answers_holds_up_no_answer(tmp_path: Path) -> None:
    # OP-1: the fault "OpenTelemetry collector x hang"; what it does to the end of a process is in tests/unit/shared/telemetry/test_setup.py
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "tea.md").write_text("# Tea\n\nGreen tea is brewed at 80 °C for two minutes.\n")
    with socket.create_server(("127.0.0.1", 0)) as frozen:
        endpoint = f"http://127.0.0.1:{frozen.getsockname()[1]}"
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_TIMEOUT": "600", "OTEL_BSP_SCHEDULE_DELAY": "50"}
        async with local_stack(tmp_path / "home", {"MARGINALIA_VAULTS": str(vault), **variables}) as stack:
            await stack.searchable()
            for _ in range(5):
                assert (await stack.client.ask("How hot is the water for green tea?")).done["status"] == "completed"
            # It did hang: somebody was connected all along, with nothing said in return.
            waiting, _ = frozen.accept()
            waiting.close()
    assert not (tmp_path / "home" / "traces").exists()

"""The whole system with a user for each service: everything works, and no service holds what another is trusted with."""

import json
from pathlib import Path

from tests.support.local_stack import local_stack

NOTE = "# Tea\n\nGreen tea is brewed at 80 °C.\n"
PROGRAMS = ("gateway", "agent", "retrieval", "notes", "contexts", "index")


async def test_everything_works_and_each_service_holds_its_own_password_alone(tmp_path: Path) -> None:
    vault = tmp_path / "vault"
    vault.mkdir()
    (vault / "tea.md").write_text(NOTE)
    async with local_stack(tmp_path / "home", {"MARGINALIA_VAULTS": str(vault)}) as stack:
        await stack.searchable()
        http = stack.client.http
        (workspace,) = (await http.get("/api/workspaces")).json()["items"]
        notes = f"/api/workspaces/{workspace['id']}/notes"
        assert (await http.put(f"{notes}/new.md", json={"content": "# New\n"}, headers={"If-None-Match": "*"})).status_code == 201
        turn = await stack.client.ask("How hot is the water for green tea?", workspace=workspace["id"])
        assert turn.done["status"] == "completed"
        assert turn.done["cited"]
        mentioning = await stack.client.ask("What does it say?", workspace=workspace["id"], references=[{"ref": "tea.md", "label": "Tea"}])
        assert mentioning.of("ContextInjected")
        await stack.searchable()
        run = await http.post("/api/retrieval/runs", json={"mode": "keyword_chunks", "query": "green tea"})
        completion = {"provider_profile": "compatible", "model": "m-1"}
        prepared = await http.post("/api/rag/contexts", json={"retrieval_run_id": run.json()["id"], "completion": completion})
        assert prepared.status_code == 201, prepared.text
        # A client that leaves is told of to everyone.
        async with http.stream("POST", "/api/chat", json={"message": "How hot is the water for green tea?"}) as left:
            assert left.status_code == 200
        # Another agent goes on in the log of the one before.
        await stack.kill("agent")
        await stack.ready()
        assert (await stack.client.events(turn.started["turn_id"])).events == turn.events

        endpoints = json.loads((stack.home / "endpoints.json").read_text())
        for name in PROGRAMS:
            variables = stack.environment(name)
            assert variables["NATS_PASSWORD_FILE"].endswith(f"/nats_{name}_password")
            assert endpoints["nats"] not in variables.values()

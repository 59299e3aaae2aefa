"""What an account prefers is its own, and read strictly."""

import pytest

from tests.support.chat_client import ChatStack, client_of

DEFAULT = {"locale": "en", "markdown": {"math": True, "diagrams": True, "callouts": True}}


async def test_preferences_are_each_accounts_own(chat_stack: ChatStack) -> None:
    http = chat_stack.client.http
    assert (await http.get("/api/preferences")).json() == DEFAULT
    changed = {"locale": "zh", "markdown": {"math": False, "diagrams": True, "callouts": True}}
    assert (await http.put("/api/preferences", json=changed)).json() == changed
    assert (await http.get("/api/preferences")).json() == changed
    made = await http.post("/api/accounts", json={"username": "mia", "password": "mia's password", "role": "member"})
    assert made.status_code == 201
    async with client_of(chat_stack.base_url) as other:
        await other.login("mia", "mia's password")
        assert (await other.http.get("/api/preferences")).json() == DEFAULT


async def test_what_is_absent_takes_its_default(chat_stack: ChatStack) -> None:
    http = chat_stack.client.http
    await http.put("/api/preferences", json={"locale": "zh", "markdown": {"callouts": False}})
    answer = await http.put("/api/preferences", json={"markdown": {"math": False}})
    assert answer.json() == {"locale": "en", "markdown": {"math": False, "diagrams": True, "callouts": True}}


@pytest.mark.parametrize(
    ("body", "location"),
    [
        ({"locale": "fr"}, "body.locale"),
        ({"theme": "dark"}, "body.theme"),
        ({"markdown": {"math": 1}}, "body.markdown.math"),
        ({"markdown": {"tables": False}}, "body.markdown.tables"),
        ({"markdown": None}, "body.markdown"),
    ],
)
async def test_what_is_no_preference_is_refused_and_changes_nothing(chat_stack: ChatStack, body: dict[str, object], location: str) -> None:
    answer = await chat_stack.client.http.put("/api/preferences", json=body)
    assert (answer.status_code, [error["location"] for error in answer.json()["errors"]]) == (422, [location])
    assert (await chat_stack.client.http.get("/api/preferences")).json() == DEFAULT

"""Who may do what: logins, sessions, CSRF, Origin, tokens, roles."""

import asyncio

import httpx

from tests.support.chat_client import PASSWORD, ChatStack, client_of


async def second(stack: ChatStack) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=stack.base_url, headers={"origin": stack.base_url}, timeout=20)


async def member(stack: ChatStack, username: str = "mia") -> dict[str, str]:
    made = await stack.client.http.post("/api/accounts", json={"username": username, "password": "mia's password", "role": "member"})
    assert made.status_code == 201
    return made.json()  # type: ignore[no-any-return]


async def test_a_login_sets_a_cookie_that_scripts_cannot_read_and_answers_with_the_csrf_token(chat_stack: ChatStack) -> None:
    async with await second(chat_stack) as http:
        answer = await http.post("/api/auth/login", json={"username": "admin", "password": PASSWORD})
        assert answer.status_code == 200
        assert set(answer.json()) == {"account", "csrf_token"}
        assert set(answer.json()["account"]) == {"id", "username", "role"}
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert "secure" not in cookie  # plain loopback http
        assert (await http.get("/api/auth/session")).json() == answer.json()


async def test_an_unknown_user_and_a_wrong_password_get_the_same_answer(chat_stack: ChatStack) -> None:
    async with await second(chat_stack) as http:
        wrong = await http.post("/api/auth/login", json={"username": "admin", "password": "no"})
        unknown = await http.post("/api/auth/login", json={"username": "nobody", "password": "no"})
    assert wrong.status_code == unknown.status_code == 401
    assert wrong.json() == unknown.json()


async def test_the_eleventh_failed_login_in_a_minute_is_refused_with_retry_after(chat_stack: ChatStack) -> None:
    async with await second(chat_stack) as http:
        for _ in range(10):
            assert (await http.post("/api/auth/login", json={"username": "admin", "password": "no"})).status_code == 401
        refused = await http.post("/api/auth/login", json={"username": "admin", "password": PASSWORD})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 0
        # Another name is not concerned.
        assert (await http.post("/api/auth/login", json={"username": "other", "password": "no"})).status_code == 401


async def test_parallel_logins_are_answered(chat_stack: ChatStack) -> None:
    async with await second(chat_stack) as http:
        posts = (http.post("/api/auth/login", json={"username": f"user{n}", "password": "no"}) for n in range(20))
        assert {answer.status_code for answer in await asyncio.gather(*posts)} == {401}


async def test_changing_requests_of_a_session_need_an_allowed_origin_and_the_csrf_token(chat_stack: ChatStack) -> None:
    http = chat_stack.client.http
    body = {"name": "a token"}
    csrf = http.headers["x-csrf-token"]
    cases = [
        ({"origin": "https://evil.example", "x-csrf-token": csrf}, "origin_rejected"),
        ({"origin": chat_stack.base_url, "sec-fetch-site": "cross-site", "x-csrf-token": csrf}, "origin_rejected"),
        ({"origin": chat_stack.base_url, "x-csrf-token": "0" * 64}, "csrf_rejected"),
        ({"origin": chat_stack.base_url, "x-csrf-token": ""}, "csrf_rejected"),
        ({"origin": chat_stack.base_url, "x-csrf-token": csrf}, None),
    ]
    for headers, code in cases:
        answer = await http.post("/api/auth/tokens", json=body, headers=headers)
        if code is None:
            assert answer.status_code == 201
        else:
            assert (answer.status_code, answer.json()["code"]) == (403, code), headers
    del http.headers["origin"]
    answer = await http.post("/api/auth/tokens", json=body)
    assert (answer.status_code, answer.json()["code"]) == (403, "origin_rejected")


async def test_a_login_needs_the_origin(chat_stack: ChatStack) -> None:
    async with httpx.AsyncClient(base_url=chat_stack.base_url) as http:
        answer = await http.post("/api/auth/login", json={"username": "admin", "password": PASSWORD})
        assert (answer.status_code, answer.json()["code"]) == (403, "origin_rejected")


async def test_logging_in_again_ends_the_session_before_and_logging_out_ends_it_for_good(chat_stack: ChatStack) -> None:
    http = chat_stack.client.http
    before = http.cookies["marginalia_session"]
    await chat_stack.client.login()
    assert http.cookies["marginalia_session"] != before
    async with await second(chat_stack) as old:
        assert (await old.get("/api/auth/session", headers={"cookie": f"marginalia_session={before}"})).status_code == 401
    present = http.cookies["marginalia_session"]
    assert (await http.post("/api/auth/logout")).status_code == 204
    async with await second(chat_stack) as old:
        assert (await old.get("/api/auth/session", headers={"cookie": f"marginalia_session={present}"})).status_code == 401
        both = f"marginalia_session={present}; marginalia_session={before}"
        assert (await old.get("/api/auth/session", headers={"cookie": both})).status_code == 401


async def test_a_bearer_token_needs_neither_origin_nor_csrf_and_stops_when_revoked(chat_stack: ChatStack) -> None:
    made = (await chat_stack.client.http.post("/api/auth/tokens", json={"name": "a program"})).json()
    listed = (await chat_stack.client.http.get("/api/auth/tokens")).json()["items"]
    assert [set(item) for item in listed] == [{"id", "name", "role", "created_at"}]
    async with httpx.AsyncClient(base_url=chat_stack.base_url, headers={"authorization": f"Bearer {made['token']}"}) as http:
        assert (await http.post("/api/chat", json={"message": "Hi", "stream": False})).status_code == 200
        assert (await chat_stack.client.http.delete(f"/api/auth/tokens/{made['id']}")).status_code == 204
        assert (await http.get("/api/auth/session")).status_code == 401


async def test_a_token_has_at_most_its_accounts_rights(chat_stack: ChatStack) -> None:
    made = (await chat_stack.client.http.post("/api/auth/tokens", json={"name": "a program", "role": "member"})).json()
    async with httpx.AsyncClient(base_url=chat_stack.base_url, headers={"authorization": f"Bearer {made['token']}"}) as http:
        assert (await http.get("/api/accounts")).status_code == 403
        refused = await http.post("/api/auth/tokens", json={"name": "more", "role": "admin"})
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")


async def test_a_member_cannot_see_what_is_anothers(chat_stack: ChatStack) -> None:
    turn = await chat_stack.client.ask("A secret")
    await member(chat_stack)
    async with client_of(chat_stack.base_url) as other:
        await other.login("mia", "mia's password")
        for method, path in [
            ("GET", f"/api/chat/conversations/{turn.started['conversation_id']}"),
            ("GET", f"/api/chat/turns/{turn.started['turn_id']}"),
            ("GET", f"/api/chat/turns/{turn.started['turn_id']}/events"),
            ("POST", f"/api/chat/turns/{turn.started['turn_id']}/cancel"),
            ("DELETE", f"/api/chat/conversations/{turn.started['conversation_id']}"),
        ]:
            answer = await other.http.request(method, path)
            assert answer.status_code == 404, (method, path)
            assert "secret" not in answer.text
        assert (await other.http.get("/api/chat/conversations")).json()["items"] == []
        continued = await other.http.post("/api/chat", json={"message": "x", "conversation_id": turn.started["conversation_id"]})
        assert (continued.status_code, continued.json()["code"]) == (404, "conversation_not_found")
        assert (await other.http.get("/api/accounts")).status_code == 403


async def test_a_disabled_account_is_out_at_once_and_the_last_admin_stays(chat_stack: ChatStack) -> None:
    account = await member(chat_stack)
    async with client_of(chat_stack.base_url) as other:
        await other.login("mia", "mia's password")
        disabled = await chat_stack.client.http.patch(f"/api/accounts/{account['id']}", json={"disabled": True})
        assert disabled.json()["disabled"] is True
        assert (await other.http.get("/api/auth/session")).status_code == 401
        assert (await other.http.post("/api/auth/login", json={"username": "mia", "password": "mia's password"})).status_code == 401
    own = (await chat_stack.client.http.get("/api/auth/session")).json()["account"]["id"]
    refused = await chat_stack.client.http.patch(f"/api/accounts/{own}", json={"role": "member"})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert (await chat_stack.client.http.get("/api/accounts")).status_code == 200


async def test_a_user_name_is_one_account_however_it_is_composed(chat_stack: ChatStack) -> None:
    await member(chat_stack, "Zoe\u0308")
    taken = await chat_stack.client.http.post("/api/accounts", json={"username": "Zo\u00eb", "password": "long enough", "role": "member"})
    assert (taken.status_code, taken.json()["code"]) == (409, "username_taken")


async def test_without_a_login_nothing_is_told(chat_stack: ChatStack) -> None:
    async with httpx.AsyncClient(base_url=chat_stack.base_url) as http:
        for path in ("/api/auth/session", "/api/workspaces", "/api/chat/conversations", "/api/retrieval/status", "/api/providers"):
            answer = await http.get(path)
            assert answer.status_code == 401
            assert answer.headers["content-type"] == "application/problem+json"
        assert (await http.get("/healthz")).status_code == 200
        assert "marginalia_http_requests" in (await http.get("/metrics")).text


async def test_the_description_of_the_api_is_served_and_says_how_errors_look(chat_stack: ChatStack) -> None:
    http = chat_stack.client.http
    described = (await http.get("/api/openapi.json")).json()
    operation = described["paths"]["/api/chat"]["post"]
    assert list(operation["responses"]["default"]["content"]) == ["application/problem+json"]
    assert operation["security"] == [{"session": []}, {"token": []}]
    assert "security" not in described["paths"]["/healthz"]["get"]
    page = await http.get("/api/docs")
    assert "/api/chat" in page.text
    assert "http://" not in page.text.replace(chat_stack.base_url, "")
    assert "default-src 'self'" in page.headers["content-security-policy"]

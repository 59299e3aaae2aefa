"""What is served of the web client, built or not; what it does in a browser is tested in tests/e2e."""

from pathlib import Path

import pytest

from services.gateway import web_client
from tests.support.chat_client import ChatStack


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "dist"
    (directory / "assets").mkdir(parents=True)
    (directory / "index.html").write_text("the client")
    (directory / "diagram.html").write_text("the frame")
    (directory / "assets" / "index-abc123.js").write_text("export {}")
    (directory / ".built").touch()
    (tmp_path / "secret.js").write_text("no")
    monkeypatch.setattr(web_client, "DIRECTORY", directory)
    return directory


async def test_the_page_is_never_stale_and_may_do_nothing_that_is_not_from_here(chat_stack: ChatStack, built: Path) -> None:
    page = await chat_stack.client.http.get("/")
    assert page.text == "the client"
    assert page.headers["cache-control"] == "no-cache"
    (policy,) = page.headers.get_list("content-security-policy")
    assert "script-src 'self';" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    assert page.headers["x-frame-options"] == "DENY"
    assert page.headers["x-content-type-options"] == "nosniff"


async def test_an_asset_is_kept_for_good_and_its_name_leads_nowhere_else(chat_stack: ChatStack, built: Path) -> None:
    http = chat_stack.client.http
    asset = await http.get("/assets/index-abc123.js")
    assert asset.text == "export {}"
    assert asset.headers["content-type"].startswith("text/javascript")
    assert asset.headers["cache-control"] == "public, max-age=31536000, immutable"
    for path in ("/assets/missing.js", "/assets/..%2f..%2fsecret.js", "/assets/..%2findex.html", "/assets/.built", "/assets/%00"):
        answer = await http.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), path


async def test_the_frame_for_diagrams_has_no_origin_and_no_network(chat_stack: ChatStack, built: Path) -> None:
    frame = await chat_stack.client.http.get("/diagram.html")
    (policy,) = frame.headers.get_list("content-security-policy")
    assert policy.startswith("default-src 'none'; script-src 'self';")
    assert policy.endswith("sandbox allow-scripts")
    assert frame.headers["x-frame-options"] == "SAMEORIGIN"


async def test_without_a_build_the_page_says_so(chat_stack: ChatStack, built: Path) -> None:
    for name in ("index.html", "diagram.html"):
        (built / name).unlink()
    page = await chat_stack.client.http.get("/")
    assert page.status_code == 200
    assert "make web" in page.text
    assert (await chat_stack.client.http.get("/diagram.html")).status_code == 404

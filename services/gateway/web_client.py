"""The web client: its pages, and the files that they load, as `make web` has built them from `web/`.

What a page may do is said by its policy of content: scripts and styles from here alone, nothing inline, no `eval`, nothing fetched from
elsewhere. Diagrams are drawn by a library that writes styles into its markup; it runs in a frame of no origin, which may do that and
nothing else.
"""

import re
from pathlib import Path

from fastapi import APIRouter
from starlette.responses import FileResponse, HTMLResponse, Response

from shared.contracts.errors import ErrorCode, ServiceError

router = APIRouter(include_in_schema=False)

DIRECTORY = Path(__file__).parent / "web" / "dist"
ASSET = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
# Names of assets hold a hash of what is in them.
FOR_GOOD = "public, max-age=31536000, immutable"
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; connect-src 'self'; frame-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify 'allow-duplicates'"
)
DIAGRAM_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'; "
    "sandbox allow-scripts"
)
NOT_BUILT = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Marginalia</title></head><body><h1>Marginalia</h1>'
    "<p>The service runs. Its web client is not built: that needs npm, and <code>make web</code>. "
    'The API is described at <a href="/api/docs">/api/docs</a>.</p></body></html>'
)


@router.get("/")
async def client() -> Response:
    """The client's page; it is asked for anew each time, and names the assets of its build."""
    if not (DIRECTORY / "index.html").is_file():
        return HTMLResponse(NOT_BUILT)
    return FileResponse(DIRECTORY / "index.html", headers={"Cache-Control": "no-cache", "Content-Security-Policy": PAGE_POLICY})


@router.get("/diagram.html")
async def diagram_frame() -> Response:
    """The page of the frame in which diagrams are drawn."""
    headers = {"Cache-Control": "no-cache", "Content-Security-Policy": DIAGRAM_POLICY, "X-Frame-Options": "SAMEORIGIN"}
    return _file(DIRECTORY / "diagram.html", headers)


@router.get("/assets/{name}")
async def asset(name: str) -> Response:
    """One of the files that the pages load. A frame of no origin may load them too."""
    if not ASSET.fullmatch(name):
        raise _not_found()
    return _file(DIRECTORY / "assets" / name, {"Cache-Control": FOR_GOOD, "Access-Control-Allow-Origin": "*"})


def _file(path: Path, headers: dict[str, str]) -> Response:
    if not path.is_file():
        raise _not_found()
    return FileResponse(path, headers=headers)


def _not_found() -> ServiceError:
    return ServiceError(ErrorCode.NOT_FOUND, "There is nothing at this address.")

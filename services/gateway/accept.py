"""What form of an answer a client wants, where there are two."""

import re

from services.gateway.strict_route import JSON

MARKDOWN = "text/markdown"
QUALITY = re.compile(r"^[01](\.\d{0,3})?$")


def prefers_markdown(accept: str) -> bool:
    """Whether Markdown is wanted more than JSON; by quality, the first named where they are equal."""
    wanted = {JSON: -1.0, MARKDOWN: -1.0}
    for position, part in enumerate(accept.split(",")):
        media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = next((parameter.removeprefix("q=") for parameter in parameters if parameter.startswith("q=")), "1")
        if media_type in wanted:
            wanted[media_type] = (float(quality) if QUALITY.match(quality) else 0.0) - position * 1e-6
    return wanted[MARKDOWN] > max(0.0, wanted[JSON])

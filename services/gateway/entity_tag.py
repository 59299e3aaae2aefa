"""Whether a client has what it asks for already (RFC 9110, 13.1.2)."""

ANY = "*"


def known(if_none_match: str | None) -> list[str]:
    """The versions that an `If-None-Match` names, weak ones like strong ones; `*` is one that is every version."""
    tags = (tag.strip().removeprefix("W/").strip('"') for tag in (if_none_match or "").split(","))
    return [tag for tag in tags if tag]

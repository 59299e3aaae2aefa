"""Front matter by a strict, bounded reader: a note's first lines may come from anyone.

At most 16 KiB, nothing deeper than eight levels, no anchors, aliases or tags, no key twice, and every scalar is a string: `NO`, dates
and long numbers stay what was written. What breaks a rule is no front matter metadata; it never is an error.
"""

from collections.abc import Iterator
from typing import Any

import yaml

from shared.contracts.front_matter import BYTES_MAX

DEPTH_MAX = 8

type Value = str | list["Value"] | dict[str, "Value"]

# The same events from libyaml, some ten times as fast, where PyYAML was built with it.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class FrontMatterError(ValueError):
    """The text breaks a rule of the module."""


def parse(source: str) -> dict[str, Value]:
    """The mapping that front matter is.

    Raises:
        FrontMatterError: it is none, or breaks a rule.
    """
    if len(source.encode()) > BYTES_MAX:
        raise FrontMatterError(f"longer than {BYTES_MAX} bytes")
    try:
        return _document(yaml.parse(source, Loader=_LOADER))
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise FrontMatterError(str(error).split("\n", 1)[0]) from error


def _document(events: Iterator[yaml.Event]) -> dict[str, Value]:
    event = next(events)
    while isinstance(event, (yaml.StreamStartEvent, yaml.DocumentStartEvent)):
        event = next(events)
    if isinstance(event, yaml.StreamEndEvent):
        return {}
    value = _value(event, events, 1)
    if not isinstance(next(events), yaml.DocumentEndEvent) or not isinstance(next(events), yaml.StreamEndEvent):
        raise FrontMatterError("more than one document")
    if value == "":
        return {}
    if not isinstance(value, dict):
        raise FrontMatterError("not a mapping")
    return value


def _value(event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Value:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) or getattr(event, "tag", None):
        raise FrontMatterError("anchors, aliases and tags are not allowed")
    if isinstance(event, yaml.ScalarEvent):
        return str(event.value)
    if depth > DEPTH_MAX:
        raise FrontMatterError(f"deeper than {DEPTH_MAX} levels")
    if isinstance(event, yaml.SequenceStartEvent):
        return _sequence(events, depth)
    return _mapping(events, depth)


def _sequence(events: Iterator[yaml.Event], depth: int) -> list[Value]:
    items: list[Value] = []
    while not isinstance(event := next(events), yaml.SequenceEndEvent):
        items.append(_value(event, events, depth + 1))
    return items


def _mapping(events: Iterator[yaml.Event], depth: int) -> dict[str, Value]:
    pairs: dict[str, Value] = {}
    while not isinstance(event := next(events), yaml.MappingEndEvent):
        key = _value(event, events, depth + 1)
        if not isinstance(key, str):
            raise FrontMatterError("a key is not a string")
        if key in pairs:
            raise FrontMatterError(f"the key {key!r} stands twice")
        pairs[key] = _value(next(events), events, depth + 1)
    return pairs

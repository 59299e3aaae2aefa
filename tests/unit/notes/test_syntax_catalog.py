"""The catalog says what the composer does, and leaves out what is switched off (MD-1, MD-6)."""

from typing import get_args

from services.notes.syntax_catalog import catalog
from shared.contracts.markdown import CALLOUT_ALIASES, Block, CalloutAlias, CalloutKind, Inline, Preset


def kinds(union: object) -> set[str]:
    members = get_args(get_args(union.__value__)[0])  # type: ignore[attr-defined]
    return {get_args(member)[1].tag for member in members}


def test_every_node_is_in_the_catalog_at_its_places() -> None:
    formats = catalog(Preset()).formats
    assert {one.type for one in formats if "block" in one.at} == kinds(Block)
    assert {one.type for one in formats if "inline" in one.at} == kinds(Inline)
    assert {one.type for one in formats if "document" in one.at} == {"front_matter", "references"}
    assert len({one.type for one in formats}) == len(formats)
    assert all(one.markdown.strip() for one in formats)


def test_every_callout_and_alias_is_named_once() -> None:
    assert set(CALLOUT_ALIASES) == set(get_args(CalloutKind))
    aliases = [alias for one in catalog(Preset()).callouts for alias in one.aliases]
    assert sorted(aliases) == sorted(get_args(CalloutAlias))


def test_what_is_switched_off_is_left_out() -> None:
    everything = {one.type for one in catalog(Preset()).formats}
    assert everything - {one.type for one in catalog(Preset(math=False)).formats} == {"math"}
    assert everything - {one.type for one in catalog(Preset(diagrams=False)).formats} == {"mermaid"}
    without = catalog(Preset(callouts=False))
    assert everything - {one.type for one in without.formats} == {"callout"}
    assert without.callouts == []


def test_the_editors_own_state_is_not_in_the_catalog() -> None:
    text = catalog(Preset()).model_dump_json().lower()
    assert not any(word in text for word in ("undo", "font", "folding"))

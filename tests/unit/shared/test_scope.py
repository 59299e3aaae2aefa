"""Scopes: what travels, what is inherited, what a cancel reaches."""

from uuid import uuid4

import pytest

from shared.messaging.scope import Account, Scope, is_within


def test_a_child_has_its_own_id_and_at_most_its_parents_time() -> None:
    parent = Scope.root(10, scope_id="t")
    assert [parent.child(5).id, parent.child(5).id] == ["t.1", "t.2"]
    assert parent.child(100).deadline == parent.deadline
    assert parent.child(1).remaining <= 1


def test_headers_carry_budget_id_and_account() -> None:
    account = Account(uuid4(), "member")
    headers = Scope.root(10, account=account, scope_id="t").to_headers()
    assert 9000 < int(headers["Timeout-Ms"]) <= 10_000
    back = Scope.from_headers(headers)
    assert (back.id, back.account) == ("t", account)
    assert 9 < back.remaining <= 10


def test_a_budget_that_has_passed_travels_as_none() -> None:
    assert Scope.root(-5).to_headers()["Timeout-Ms"] == "0"
    assert Scope.from_headers({"Timeout-Ms": "-5"}).remaining <= 0


def test_without_headers_there_is_a_default_and_no_account() -> None:
    scope = Scope.from_headers(None)
    assert scope.account is None
    assert 29 < scope.remaining <= 30


@pytest.mark.parametrize(
    "headers", [{"Timeout-Ms": "x"}, {"Account-Id": "x", "Account-Role": "admin"}, {"Account-Id": str(uuid4()), "Account-Role": "root"}]
)
def test_malformed_headers_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Scope.from_headers(headers)


REACH = [("t", "t", True), ("t.1", "t", True), ("t.1.2", "t.1", True), ("t1", "t", False), ("t", "t.1", False), ("t.10", "t.1", False)]


@pytest.mark.parametrize(("scope", "ancestor", "within"), REACH)
def test_a_cancel_reaches_what_is_below_and_nothing_beside(scope: str, ancestor: str, within: bool) -> None:
    assert is_within(scope, ancestor) is within

"""Callers: what their scopes and session patterns let them do."""

import pytest

from toolwright.http.access.caller import SCOPES, Caller


def caller(*scopes, sessions=("*",)):
    return Caller("ann", frozenset(scopes), tuple(sessions))


def test_a_scope_includes_no_other_one_and_admin_all() -> None:
    for held in ("read", "run", "approve"):
        assert [scope for scope in SCOPES if caller(held).may(scope)] == [held]
    assert all(caller("admin").may(scope) for scope in SCOPES)
    assert not any(caller().may(scope) for scope in SCOPES)


@pytest.mark.parametrize(
    ("patterns", "session", "own"),
    [
        (("*",), "anything", True),
        (("team-*",), "team-1", True),
        (("team-*",), "Team-1", False),
        (("team-*",), "my-team-1", False),
        (("a", "b"), "b", True),
        (("a", "b"), "ab", False),
        (("a|b",), "b", False),
        (("a",), "a\n", False),
        (("a*",), "a\nb", True),
        ((), "a", False),
        (("[ab]",), "a", True),
        (("",), "", True),
    ],
)
def test_a_pattern_is_compared_with_the_whole_id_of_a_session(patterns, session, own) -> None:
    some = caller("read", sessions=patterns)
    assert some.sees(session) is own
    assert some.may("read", session) is own
    assert not some.may("run", session)
    assert some.everywhere is (patterns == ("*",))


def test_what_is_of_no_session_needs_the_scope_only() -> None:
    assert caller("read", sessions=["a"]).may("read")
    assert not caller("read", sessions=["a"]).may("run")


def test_a_decision_is_told_who_and_from_where() -> None:
    some = Caller("ann", frozenset({"approve"}), token="tk1", address="10.0.0.7")
    assert (some.by, some.via) == ("ann", "http tk1 10.0.0.7")
    assert caller("approve").via == "http"

"""What users see of a runtime and a session: their methods, and nothing of their inside."""

import pytest

from toolwright import Runtime, Session

SESSION = """
    id policy tools
    ask start_turn turns turn
    run_batch start_batch call would cancel wait_for_idle batches cancel_waits revoke subscribe
    waits approvals approve deny resolve reject may_ask_about questions answer decline
    spawn track runs run schedule schedules scheduled on off triggers
    catalogue offered definitions
    files kv details secrets messages attachments resources
    connect disconnect connections
    opened_by
"""
RUNTIME = """
    open open_blocking close
    app tools policy clock log
    session sessions export_session import_session delete_session rotate_secrets
    unfinished recover recover_turns
    resolve reject cancel expire signal approvals decisions approve deny
    questions answer decline
    turns turn
    runs run schedules scheduled occur worker drain
    capabilities definitions prompt servers subscribe event_log derive_key
"""


@pytest.mark.promise("APP-06")
async def test_a_session_and_a_runtime_show_their_public_names_and_no_others() -> None:
    async with Runtime.open() as runtime:
        for shown, expected in ((runtime.session("s"), SESSION), (runtime, RUNTIME)):
            assert {name for name in dir(shown) if not name.startswith("_")} == set(expected.split())
        assert vars(type(runtime.session("s"))).keys() >= set(SESSION.split())


@pytest.mark.promise("APP-06")
def test_a_session_and_a_runtime_inherit_nothing() -> None:
    assert Session.__bases__ == Runtime.__bases__ == (object,)

"""Values that tools may use and models never see: how they are kept."""

import base64
import copy
import pickle

import apsw
import pytest

from tests.session.leaks import files_beside
from toolwright import RetryPolicy, ToolCall, ToolContext, ToolError, tool
from toolwright.errors import SecretsError, ServiceError
from toolwright.session.secrets.master_keys import GivenKeys
from toolwright.stores.contracts.sessions import Quota, Quotas
from toolwright.testing import FakeClock

VALUE = 'sk-live-4242/éà+"quoted"'


@pytest.mark.promise("SES-03")
async def test_secrets_are_kept_with_the_instants_of_their_first_and_last_writing(place, open_runtime):
    clock = FakeClock()
    runtime = await open_runtime(place, clock=clock)
    secrets = runtime.session("s").secrets
    began = clock.now()
    await secrets.set("b", VALUE)
    await secrets.set("a", "first value")
    await clock.advance(10)
    await secrets.set("a", "second value")
    assert (await secrets.get("a"), await secrets.get("b"), await secrets.get("c")) == ("second value", VALUE, None)
    listed = await secrets.list()
    assert [(info.key, info.created_at - began, info.updated_at - began) for info in listed] == [
        ("a", pytest.approx(0), pytest.approx(10)),
        ("b", pytest.approx(0), pytest.approx(0)),
    ]
    assert "value" not in repr(listed)
    assert (await secrets.delete("a"), await secrets.delete("a")) == (True, False)
    assert await secrets.get("a") is None


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize("name", ["", " ", "x" * 256, "a\0b", "a\nb", "\ud800", 3, None], ids=repr)
async def test_a_name_that_is_not_usable_is_refused(place, open_runtime, name):
    secrets = (await open_runtime(place)).session("s").secrets
    for use in (secrets.get(name), secrets.set(name, VALUE), secrets.delete(name)):
        with pytest.raises(ServiceError, match="secret name"):
            await use
    assert await secrets.list() == []


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize(
    "value", ["", "abc", "  abc  ", "     ", "x\ud800yzw", "x" * 16_385, 12345678, None, b"bytes!"]
)
async def test_a_value_that_could_not_be_redacted_is_refused_and_not_shown(place, open_runtime, value):
    secrets = (await open_runtime(place)).session("s").secrets
    with pytest.raises(ServiceError, match="'k'") as refused:
        await secrets.set("k", value)
    assert not value or str(value).strip() == "" or str(value).strip() not in str(refused.value)
    assert await secrets.list() == []


@pytest.mark.promise("SES-03")
async def test_a_name_that_tells_the_value_is_refused(place, open_runtime):
    secrets = (await open_runtime(place)).session("s").secrets
    with pytest.raises(ServiceError, match="another name") as refused:
        await secrets.set("key-hunter2", "hunter2")
    assert "hunter2" not in str(refused.value)


@pytest.mark.promise("SES-03")
async def test_a_session_may_not_keep_more_secrets_than_its_quota(place, open_runtime):
    runtime = await open_runtime(place, quotas=Quotas(secrets=Quota(2, 200)))
    secrets = runtime.session("s").secrets
    await secrets.set("a", "x" * 40)
    await secrets.set("b", "y" * 40)
    with pytest.raises(ServiceError, match="2 secrets") as refused:
        await secrets.set("c", "some value")
    assert refused.value.code == "quota"
    with pytest.raises(ServiceError, match="200 bytes"):
        await secrets.set("a", "x" * 150)
    assert await secrets.get("a") == "x" * 40


@pytest.mark.promise("SES-06")
async def test_one_session_does_not_see_anothers_secrets(place, open_runtime):
    runtime = await open_runtime(place)
    await runtime.session("s").secrets.set("a", VALUE)
    other = runtime.session("t").secrets
    assert (await other.get("a"), await other.list(), await other.delete("a")) == (None, [], False)
    await other.set("a", "another value")
    assert await runtime.session("s").secrets.get("a") == VALUE


@pytest.mark.promise("SES-03")
async def test_no_file_beside_the_store_has_a_value_in_clear(file, open_runtime):
    @tool
    async def work(ctx: ToolContext) -> str:
        value = await ctx.secrets.get("given")
        await ctx.secrets.set("made", "minted-0123456789")
        await ctx.secrets.set("copied", value)
        got = await ctx.step("login", lambda token: {"token": token, "ok": True}, value)
        await ctx.call("deeper", token=value)
        return f"{value} {got['token']} minted-0123456789"

    @tool
    async def deeper(token: str) -> str:
        return f"deeper {token}"

    @tool
    async def failing(ctx: ToolContext) -> None:
        raise ValueError(await ctx.secrets.get("given"))

    runtime = await open_runtime(file, work, deeper, failing, events_file=file.parent / "events.jsonl")
    session = runtime.session("s")
    await session.secrets.set("given", VALUE)
    outcomes = await session.run_batch([ToolCall(name="work", arguments={}), ToolCall(name="failing", arguments={})])
    assert outcomes[0].ok, outcomes[0]
    await session.secrets.delete("copied")

    def require_none():
        for name, data in files_beside(file):
            for value in (VALUE, "minted-0123456789"):
                for form in (value.encode(), base64.b64encode(value.encode()), VALUE.replace('"', '\\"').encode()):
                    assert form not in data, name

    require_none()
    assert {name for name, _ in files_beside(file)} >= {"agent.db", "agent.db-wal", "events.jsonl"}
    await runtime.close()
    require_none()


@pytest.mark.promise("SES-03")
async def test_what_is_written_about_a_change_does_not_let_a_guess_be_checked(file, open_runtime):
    @tool
    async def work(ctx: ToolContext) -> None:
        await ctx.secrets.set("pin", "1234")

    labels = []
    for place in (file, file.with_name("other.db")):
        runtime = await open_runtime(place, work)
        await runtime.session("s").run_batch([ToolCall(id="c1", name="work", arguments={})])
        await runtime.close()
        database = apsw.Connection(str(place))
        labels += database.execute("SELECT label FROM effects").fetchall()
        database.close()
    assert len(labels) == len(set(labels)) == 2  # Two stores, two keys: the same value has two names.


@pytest.mark.promise("SES-03")
async def test_the_objects_that_hold_values_show_and_pickle_none(place, open_runtime):
    runtime = await open_runtime(place)
    session = runtime.session("s")
    await session.secrets.set("k", VALUE)
    key = b"k" * 32
    keys = GivenKeys(key)
    assert "kkk" not in repr(keys)
    assert VALUE not in repr(session.secrets) + repr(session) + repr(vars(session.secrets))
    for thing in (session.secrets, keys):
        with pytest.raises(TypeError):
            pickle.dumps(thing)
        with pytest.raises(TypeError):
            copy.deepcopy(thing)


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize(
    "change",
    [
        "UPDATE secrets SET sealed = (SELECT sealed FROM secrets WHERE name = 'b') WHERE name = 'a'",
        "UPDATE secrets AS it SET wrapped = b.wrapped, sealed = b.sealed FROM secrets AS b"
        " WHERE it.name = 'a' AND b.name = 'b'",
        "UPDATE secrets SET wrapped = (SELECT wrapped FROM secrets WHERE name = 'b') WHERE name = 'a'",
        "UPDATE secrets SET sealed = zeroblob(length(sealed)) WHERE name = 'a'",
        "UPDATE secrets SET sealed = x'' WHERE name = 'a'",
        "UPDATE secrets SET wrapped = x'00' WHERE name = 'a'",
        "UPDATE secrets SET sealed = substr(sealed, 1, length(sealed) - 1) WHERE name = 'a'",
        "DELETE FROM secrets WHERE session = 't'; UPDATE secrets SET session = 't' WHERE name = 'a'",
    ],
)
async def test_a_row_that_was_changed_or_moved_is_refused(file, open_runtime, change):
    runtime = await open_runtime(file)
    await runtime.session("s").secrets.set("a", "value of a")
    await runtime.session("s").secrets.set("b", "value of b")
    await runtime.session("t").secrets.set("a", "value of t")
    await runtime.close()
    database = apsw.Connection(str(file))
    database.execute(change)
    database.close()
    runtime = await open_runtime(file)
    session = runtime.session("t" if "'t'" in change else "s")
    with pytest.raises(SecretsError, match=r"'a'.*cannot be opened") as refused:
        await session.secrets.get("a")
    assert "value" not in str(refused.value)
    await session.secrets.set("a", "set again")
    assert await session.secrets.get("a") == "set again"


@pytest.mark.promise("SES-03")
async def test_a_call_that_is_tried_again_sets_a_secret_once(place, open_runtime):
    @tool(retry=RetryPolicy(attempts=2, base_delay=0), idempotent=True)
    async def work(ctx: ToolContext) -> str:
        if ctx.attempt == 1:
            await ctx.secrets.set("k", "first value")
            raise ToolError("again", retry=True)
        await runtime.session("s").secrets.set("k", "of the host")
        await ctx.secrets.set("k", "first value")
        return "done"

    runtime = await open_runtime(place, work)
    outcome = await runtime.session("s").call("work")
    assert outcome.ok, outcome
    assert await runtime.session("s").secrets.get("k") == "of the host"


@pytest.mark.promise("SES-03")
async def test_a_step_gives_the_value_of_a_secret_again(place, open_runtime):
    @tool(retry=RetryPolicy(attempts=2, base_delay=0), idempotent=True)
    async def work(ctx: ToolContext) -> bool:
        value = await ctx.step("read", ctx.secrets.get, "k")
        if ctx.attempt == 1:
            raise ToolError("again", retry=True)
        return value == VALUE

    runtime = await open_runtime(place, work)
    await runtime.session("s").secrets.set("k", VALUE)
    assert (await runtime.session("s").call("work")).value is True

"""Secrets of a process that was killed in the middle."""

import base64

import pytest

from tests.session.leaks import files_beside
from tests.support import fail_after
from toolwright import Runtime, tool
from toolwright.session.secrets.master_keys import GivenKeys

VALUE = "minted/0123456789+é"

MINTING = """
VALUE = "minted/0123456789+é"

@tool(on_crash="rerun")
async def mint(ctx: ToolContext) -> str:
    token = await ctx.step("mint", lambda: note("mint") or VALUE) if not known else await ctx.secrets.get("known")
    await ctx.secrets.set("token", token)
    used = await ctx.step("use", lambda token: note("use") or f"used {token}", token)
    again = await ctx.step("again", lambda: note("again") or {"deep": [token]})
    if dies:
        die()
    return f"{used} {again['deep'][0]} {token}"

async def main():
    async with Runtime.open(store, tools=[mint]) as runtime:
        if known and dies:
            await runtime.session("s").secrets.set("known", VALUE)
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="mint", arguments={})])
        say(outcome.to_json())
"""


def require_nothing_in_clear(crashes):
    for name, data in files_beside(crashes.store):
        for form in (VALUE.encode(), base64.b64encode(VALUE.encode()), VALUE.encode().hex().encode()):
            assert form not in data, name


@pytest.mark.promise("SES-03", "EFF-06")
async def test_steps_give_a_secret_again_after_a_kill_and_the_disk_never_had_it(crashes):
    crashes.crash(MINTING, dies=True, known=True)
    assert crashes.ledger == ["use", "again"]
    require_nothing_in_clear(crashes)
    (outcome,) = crashes.start(MINTING, dies=False, known=True).wait().said
    handle = "[secret:known]"
    assert outcome["text"] == f"used {handle} {handle} {handle}"
    assert crashes.ledger == ["use", "again"]
    require_nothing_in_clear(crashes)


@pytest.mark.promise("SES-03", "EFF-06")
async def test_a_value_that_was_a_steps_result_before_it_was_a_secret_is_no_other_input_after(crashes):
    crashes.crash(MINTING, dies=True, known=False)
    (outcome,) = crashes.start(MINTING, dies=False, known=False).wait().said
    handle = "[secret:token]"
    assert outcome["text"] == f"used {handle} {handle} {handle}"
    assert crashes.ledger == ["mint", "use", "again"]


@pytest.mark.promise("SES-03", "EFF-06")
async def test_a_call_that_is_run_again_after_a_kill_does_not_set_a_secret_twice(crashes):
    program = """
@tool(on_crash="rerun")
async def work(ctx: ToolContext) -> str:
    await ctx.secrets.set("k", "set by the call")
    if dies:
        die()
    return await ctx.secrets.get("k")

async def main():
    async with Runtime.open(store, tools=[work]) as runtime:
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="work", arguments={})])
        say(outcome.text)
"""
    crashes.crash(program, dies=True)
    async with fail_after(10), Runtime.open(crashes.store) as runtime:
        assert await runtime.session("s").secrets.get("k") == "set by the call"
        await runtime.session("s").secrets.set("k", "set by the host")
    assert crashes.start(program, dies=False).wait().said == ["[secret:k]"]
    async with fail_after(10), Runtime.open(crashes.store) as runtime:
        assert await runtime.session("s").secrets.get("k") == "set by the host"


@pytest.mark.promise("SES-03")
async def test_a_call_that_recovery_finishes_redacts_what_it_never_read(crashes):
    program = """
@tool(on_crash="rerun")
async def echo(text: str) -> str:
    die()

async def main():
    async with Runtime.open(store, tools=[echo]) as runtime:
        await runtime.session("s").secrets.set("k", "the value")
        await runtime.session("s").run_batch([ToolCall(id="c1", name="echo", arguments={"text": "it is the value"})])
"""
    crashes.crash(program)

    @tool(on_crash="rerun")
    async def echo(text: str) -> str:
        return text

    async with fail_after(10), Runtime.open(crashes.store, tools=[echo]) as runtime:
        (recovered,) = await runtime.recover()
        assert recovered.outcome.value == "it is [secret:k]"


@pytest.mark.promise("SES-03")
async def test_a_rotation_that_was_cut_off_loses_nothing_and_is_done_again(crashes):
    program = """
from toolwright.session.secrets.master_keys import GivenKeys

class Dying(GivenKeys):
    left = 600

    def key(self, key_id):
        self.left -= 1
        if self.left == 0:
            die()
        return super().key(key_id)

async def main():
    async with Runtime.open(store, master_key=GivenKeys(b"1" * 32)) as runtime:
        for number in range(450):
            await runtime.session("s").secrets.set(f"name {number}", f"value {number}")
    async with Runtime.open(store, master_key=Dying(b"2" * 32, b"1" * 32)) as runtime:
        await runtime.rotate_secrets()
"""
    crashes.crash(program)

    async def values(runtime):
        secrets = runtime.session("s").secrets
        return [await secrets.get(f"name {number}") for number in range(450)]

    expected = [f"value {number}" for number in range(450)]
    async with fail_after(20), Runtime.open(crashes.store, master_key=GivenKeys(b"2" * 32, b"1" * 32)) as runtime:
        assert await values(runtime) == expected
        moved = await runtime.rotate_secrets()
        assert 0 < moved < 450
    async with fail_after(20), Runtime.open(crashes.store, master_key=GivenKeys(b"2" * 32)) as runtime:
        assert await values(runtime) == expected


@pytest.mark.promise("SES-03")
async def test_a_kill_while_the_key_file_is_made_leaves_none_or_a_whole_one(crashes):
    program = """
import os

def dying(*args, **options):
    if when == "after":
        link(*args, **options)
    die()

link, os.link = os.link, dying

async def main():
    async with Runtime.open(store) as runtime:
        await runtime.session("s").secrets.set("k", "the value")
"""
    for when in ("before", "after"):
        crashes.crash(program, when=when)
        async with fail_after(10), Runtime.open(crashes.store) as runtime:
            assert await runtime.session("s").secrets.list() == []
    key = crashes.store.with_name("agent.db.key")
    assert key.stat().st_mode & 0o777 == 0o600
    async with fail_after(10), Runtime.open(crashes.store) as runtime:
        await runtime.session("s").secrets.set("k", "the value")
        assert await runtime.session("s").secrets.get("k") == "the value"


@pytest.mark.promise("SES-03")
async def test_a_nested_call_with_a_secret_in_its_arguments_is_found_again_after_a_kill(crashes):
    program = """
@tool(on_crash="rerun")
async def outer(ctx: ToolContext) -> list[str]:
    value = await ctx.secrets.get("k")
    inner = await ctx.call("inner", token=value)
    if dies:
        die()
    return [inner.text, str(inner.replayed)]

@tool
async def inner(token: str) -> str:
    note(str(len(token)))
    return f"with {token}"

async def main():
    async with Runtime.open(store, tools=[outer, inner]) as runtime:
        if dies:
            await runtime.session("s").secrets.set("k", "minted/0123456789+é")
        (outcome,) = await runtime.session("s").run_batch([ToolCall(id="c1", name="outer", arguments={})])
        say(outcome.to_json())
"""
    crashes.crash(program, dies=True)
    require_nothing_in_clear(crashes)
    (outcome,) = crashes.start(program, dies=False).wait().said
    assert outcome["value"] == ["with [secret:k]", "True"]
    assert crashes.ledger == [str(len(VALUE))]

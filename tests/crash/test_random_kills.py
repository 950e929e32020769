"""Kill -9 at any instant loses nothing that was acknowledged, and runs nothing twice that must not be."""

import random

import pytest

from tests.support import fail_after
from toolwright import Policy, Runtime, ToolCall, tool

KILLS = 45

PROGRAM = """
import random
from toolwright import Policy

@tool(readonly=True)
async def read(key: str) -> str:
    note(f"read:{key}")
    if len(key) % 2:
        await asyncio.sleep(0)
    return os.urandom(4).hex()

@tool(idempotent=True)
async def put(key: str) -> str:
    note(f"put:{key}")
    return os.urandom(4).hex()

@tool
async def pay(key: str) -> str:
    note(f"pay:{key}")
    await asyncio.sleep(0)
    return os.urandom(4).hex()

@tool
def pay_blocking(key: str) -> str:
    note(f"pay_blocking:{key}")
    return os.urandom(4).hex()

async def work(session, worker):
    chance = random.Random(f"{seed}-{worker}")
    for number in range(10_000):
        keys = [f"{seed}.{worker}.{number}.{n}" for n in range(chance.randint(1, 6))]
        names = [chance.choice(["read", "put", "pay", "pay_blocking"]) for _ in keys]
        calls = [ToolCall(id=key, name=name, arguments={"key": key}) for key, name in zip(keys, names)]
        outcomes = await session.run_batch(calls)
        say([[outcome.call_id, outcome.tool, outcome.value] for outcome in outcomes])

async def main():
    policy = Policy(max_crashes=1000)  # They are killed more often than calls that are not to blame.
    async with Runtime.open(store, tools=[read, put, pay, pay_blocking], sync=sync, policy=policy) as runtime:
        recovered = await runtime.recover()
        say([[one.call_id, one.tool, one.outcome.value] for one in recovered])
        await asyncio.gather(*(work(runtime.session(f"s{worker}"), worker) for worker in range(3)))
"""


@pytest.mark.promise("EFF-04", "EFF-05", "EFF-08")
async def test_killed_at_any_instant_nothing_acknowledged_is_lost_and_nothing_runs_twice(crashes):
    chance = random.Random(20240607)
    acknowledged: dict[str, tuple[str, str]] = {}
    for seed in range(KILLS):
        program = crashes.start(PROGRAM, seed=seed, sync="full" if seed % 3 else "normal")
        # Some die while they open the store or recover, most while they work.
        said = [program.hear() for _ in range(chance.randint(1, 6))] if seed % 5 else []
        program.listen(chance.uniform(0, 0.12))
        for answers in [*said, *program.kill().said]:
            for call_id, name, value in answers:
                assert acknowledged.setdefault(call_id, (name, value)) == (name, value)

    @tool(readonly=True)
    async def read(key: str) -> str:
        return "read at the end"

    @tool(idempotent=True)
    async def put(key: str) -> str:
        return "put at the end"

    @tool
    async def pay(key: str) -> str:
        return "paid at the end"

    @tool
    def pay_blocking(key: str) -> str:
        return "paid at the end"

    ran = [tuple(line.split(":")) for line in crashes.ledger]
    opened = Runtime.open(crashes.store, tools=[read, put, pay, pay_blocking], policy=Policy(max_crashes=1000))
    async with fail_after(60), opened as runtime:
        begun_last = {one.call_id for one in await runtime.recover() if one.action in ("run", "rerun")}
        assert await runtime.recover() == []
        payments = [key for name, key in ran if name.startswith("pay")]
        assert len(payments) == len(set(payments))
        assert not begun_last & set(payments)

        known = dict({key: name for name, key in ran}, **{key: name for key, (name, _) in acknowledged.items()})
        for worker in range(3):
            keys = sorted(key for key in known if key.split(".")[1] == str(worker))
            calls = [ToolCall(id=key, name=known[key], arguments={"key": key}) for key in keys]
            for key, outcome in zip(keys, await runtime.session(f"s{worker}").run_batch(calls), strict=True):
                assert outcome.replayed, key
                if key in acknowledged:
                    assert acknowledged[key] == (outcome.tool, outcome.value)
                if known[key] in ("read", "put"):
                    assert outcome.ok, key
                elif not outcome.ok:
                    assert outcome.failure is not None
                    assert outcome.failure.category == "interrupted"

    assert len(acknowledged) > 200
    assert len(crashes.owners()) == 0

"""The keys that secrets are sealed with: where they come from, and how they are changed."""

import base64
import os

import apsw
import pytest

from tests.support import fail_after
from toolwright import ReplayMismatch, ToolCall, ToolContext, tool
from toolwright.errors import MissingRequirement, SecretsError
from toolwright.session.secrets.master_keys import EnvironmentKeys, GivenKeys, KeyFile

ONE, TWO = b"1" * 32, b"2" * 32
VALUE = "correct horse battery staple"


def text(*keys: bytes) -> str:
    return ",".join(base64.b64encode(key).decode() for key in keys)


@pytest.mark.promise("SES-03")
async def test_a_store_in_a_file_has_its_key_beside_it_and_only_for_its_owner(file, open_runtime):
    runtime = await open_runtime(file)
    key = file.with_name("agent.db.key")
    assert not key.exists()
    await runtime.session("s").secrets.set("k", "the value")
    assert key.stat().st_mode & 0o777 == 0o600
    await runtime.close()
    runtime = await open_runtime(file)
    assert await runtime.session("s").secrets.get("k") == "the value"
    assert sorted(path.name for path in file.parent.glob("*.key*")) == ["agent.db.key"]


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
async def test_a_key_file_that_others_may_read_is_refused(file, open_runtime, mode):
    key = file.with_name("agent.db.key")
    key.write_text(text(ONE) + "\n")
    key.chmod(mode)
    runtime = await open_runtime(file)
    with pytest.raises(SecretsError, match=f"{mode:04o}.*chmod 600"):
        await runtime.session("s").secrets.set("k", "the value")
    key.chmod(0o600)
    await runtime.session("s").secrets.set("k", "the value")


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize("content", ["", "\n", "nonsense\n", text(ONE)[:-9] + "\n", text(ONE)])
async def test_a_key_file_that_is_damaged_is_refused_and_left_as_it_is(file, open_runtime, content):
    key = file.with_name("agent.db.key")
    key.write_text(content)
    key.chmod(0o600)
    runtime = await open_runtime(file)
    with pytest.raises(SecretsError, match="restore it from a copy") as refused:
        await runtime.session("s").secrets.set("k", "the value")
    assert text(ONE)[:8] not in str(refused.value)
    assert key.read_text() == content


@pytest.mark.promise("SES-03")
async def test_a_lost_key_is_named_and_loses_nothing(file, open_runtime):
    runtime = await open_runtime(file)
    await runtime.session("s").secrets.set("k", "the value")
    await runtime.close()
    key = file.with_name("agent.db.key")
    hidden = key.rename(file.with_name("hidden"))

    @tool
    async def use(ctx: ToolContext) -> str | None:
        return await ctx.secrets.get("k")

    with pytest.raises(MissingRequirement) as refused:
        await open_runtime(file, use)
    assert f"there is no key file {str(key)!r}; put that file back from a copy, or set" in str(refused.value)
    assert "TOOLWRIGHT_MASTER_KEY" in str(refused.value)
    runtime = await open_runtime(file)
    runtime.tools.register(use)
    session = runtime.session("s")
    with pytest.raises(SecretsError, match=r"'k'.*not known; provide that key"):
        await session.secrets.get("k")
    assert not key.exists()  # Reading makes no key: it would look like the right one.
    outcome = await session.call("use")
    assert (outcome.failure.category, "master" in outcome.text) == ("internal", False)
    with pytest.raises(SecretsError, match="1 secrets stay"):
        await runtime.rotate_secrets()
    key.unlink(missing_ok=True)
    hidden.rename(key)
    assert await session.secrets.get("k") == "the value"


@pytest.mark.promise("SES-03", "APP-05")
async def test_a_key_file_that_does_not_have_the_key_is_named(file, open_runtime):
    runtime = await open_runtime(file)
    await runtime.session("s").secrets.set("k", "the value")
    await runtime.close()
    key = file.with_name("agent.db.key")
    key.write_text(text(ONE) + "\n")

    @tool
    async def use() -> None: ...

    with pytest.raises(MissingRequirement) as refused:
        await open_runtime(file, use)
    assert f"is not in the key file {str(key)!r}; put the right file back from a copy, or set" in str(refused.value)


@pytest.mark.promise("SES-03")
async def test_another_key_under_the_same_id_opens_nothing(file, open_runtime):
    class Provider:
        def __init__(self, key):
            self._key = key

        def current(self):
            return "mine"

        def key(self, key_id):
            return self._key if key_id == "mine" else None

    runtime = await open_runtime(file, master_key=Provider(ONE))
    await runtime.session("s").secrets.set("k", "the value")
    await runtime.close()
    for wrong in (TWO, b"short", None, "text" * 8):
        runtime = await open_runtime(file, master_key=Provider(wrong))
        with pytest.raises(SecretsError, match="'k'"):
            await runtime.session("s").secrets.get("k")
        await runtime.close()
    runtime = await open_runtime(file, master_key=Provider(ONE))
    assert await runtime.session("s").secrets.get("k") == "the value"


@pytest.mark.promise("SES-03")
async def test_the_environment_gives_keys_of_which_the_first_is_current(file, open_runtime, monkeypatch):
    monkeypatch.setenv("TOOLWRIGHT_MASTER_KEY", text(ONE))
    runtime = await open_runtime(file)
    await runtime.session("s").secrets.set("k", "the value")
    await runtime.close()
    assert not file.with_name("agent.db.key").exists()
    monkeypatch.setenv("TOOLWRIGHT_MASTER_KEY", f" {text(TWO)} , {text(ONE)},")
    runtime = await open_runtime(file)
    assert await runtime.session("s").secrets.get("k") == "the value"
    assert await runtime.rotate_secrets() == 1
    assert await runtime.rotate_secrets() == 0
    await runtime.close()
    monkeypatch.setenv("TOOLWRIGHT_MASTER_KEY", text(TWO))
    runtime = await open_runtime(file)
    assert await runtime.session("s").secrets.get("k") == "the value"


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize("given", ["", " , ", "secretsecret", f"{text(ONE)},nonsense", text(b"short")])
async def test_an_environment_without_a_usable_key_is_refused_and_not_shown(open_runtime, monkeypatch, given):
    monkeypatch.setenv("TOOLWRIGHT_MASTER_KEY", given)
    runtime = await open_runtime(":memory:", master_key=EnvironmentKeys())
    with pytest.raises(SecretsError, match=r"TOOLWRIGHT_MASTER_KEY.*base64 of 32") as refused:
        await runtime.session("s").secrets.set("k", "the value")
    for part in given.split(","):
        assert not part.strip() or part not in str(refused.value)


@pytest.mark.promise("SES-03")
async def test_rotation_moves_every_session_to_the_current_key(file, open_runtime):
    keys = KeyFile(file.with_name("keys"))
    runtime = await open_runtime(file, master_key=keys)
    values = {(f"s{number % 7}", f"name {number}"): f"value {number}" for number in range(450)}
    for (session, name), value in values.items():
        await runtime.session(session).secrets.set(name, value)

    def rows():
        database = apsw.Connection(str(file))
        found = database.execute("SELECT session, name, master, sealed FROM secrets").fetchall()
        database.close()
        return {(session, name): (master, sealed) for session, name, master, sealed in found}

    before = rows()
    old, new = keys.current(), keys.renew()
    assert old != new
    assert await runtime.rotate_secrets() == 450
    after = rows()
    assert {master for master, _ in before.values()} == {old}
    assert {master for master, _ in after.values()} == {new}
    assert {key: sealed for key, (_, sealed) in before.items()} == {key: sealed for key, (_, sealed) in after.items()}
    await runtime.close()
    runtime = await open_runtime(file, master_key=GivenKeys(keys.key(new)))
    for (session, name), value in values.items():
        assert await runtime.session(session).secrets.get(name) == value


async def test_keys_that_two_processes_add_to_a_file_at_once_are_all_kept(tmp_path):
    first, second = KeyFile(tmp_path / "keys"), KeyFile(tmp_path / "keys")
    made = [first.current(), second.renew(), first.renew(), second.renew()]
    assert len(set(made)) == 4
    assert all(first.key(each) is not None and second.key(each) is not None for each in made)
    assert first.current() == second.current() == made[-1]


async def test_a_key_that_a_crash_cut_off_while_it_was_added_is_no_key(tmp_path):
    keys = KeyFile(tmp_path / "keys")
    current = keys.current()
    with (tmp_path / "keys").open("a") as file:
        file.write("\nc2hvcnQ")
    assert KeyFile(tmp_path / "keys").current() == current


async def test_a_key_file_is_not_made_where_none_may_be(tmp_path):
    with pytest.raises(SecretsError, match="No such file"):
        KeyFile(tmp_path / "missing" / "keys").current()
    (tmp_path / "folder").mkdir()
    with pytest.raises(SecretsError, match="folder"):
        KeyFile(tmp_path / "folder").current()
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("key", [b"", b"short", "x" * 32, None])
def test_a_given_key_of_another_size_is_refused(key):
    with pytest.raises(SecretsError, match="32 random bytes"):
        GivenKeys(key)


@pytest.mark.promise("SAFE-05", "EFF-11")
async def test_a_call_with_a_secret_argument_is_found_again_after_its_key_was_renewed_and_dropped(file, open_runtime):
    @tool(secret="pin")
    async def use(pin: str) -> str:
        return "used"

    calls = [ToolCall(id="c1", name="use", arguments={"pin": "correct horse"})]
    short = [ToolCall(id="c2", name="use", arguments={"pin": "abc"})]
    for keys in ([ONE], [TWO, ONE], [TWO]):
        runtime = await open_runtime(file, use, master_key=GivenKeys(*keys))
        session = runtime.session("s")
        for batch in (calls, short):
            (outcome,) = await session.run_batch(batch)
            assert (outcome.value, outcome.replayed) == ("used", keys != [ONE])
        if len(keys) == 2:
            await runtime.rotate_secrets()
        with pytest.raises(ReplayMismatch, match="something else"):
            await session.run_batch([ToolCall(id="c1", name="use", arguments={"pin": "another horse"})])
        await runtime.close()


@pytest.mark.promise("SAFE-05", "EFF-06")
async def test_the_sealed_result_of_a_step_moves_to_the_new_key(file, open_runtime):
    made = []

    keys = []

    @tool(on_crash="rerun")
    async def work(ctx: ToolContext) -> bool:
        token = await ctx.step("make", make)
        keys.append(ctx.signal_key("go"))
        await ctx.receive("go")
        return token == VALUE

    def make() -> str:
        made.append(1)
        return VALUE

    runtime = await open_runtime(file, work, master_key=GivenKeys(ONE))
    session = runtime.session("s")
    await session.secrets.set("k", VALUE)
    events = session.subscribe()
    session.start_batch([ToolCall(id="c1", name="work")])
    async with fail_after(5):
        async for event in events:
            if event.kind == "call.waiting":
                break
    await runtime.close()
    assert VALUE.encode() not in b"".join(path.read_bytes() for path in file.parent.glob("agent.db*"))
    runtime = await open_runtime(file, master_key=GivenKeys(TWO, ONE))
    assert await runtime.rotate_secrets() == 2  # the secret, and what the step gave
    assert await runtime.rotate_secrets() == 0
    await runtime.close()
    runtime = await open_runtime(file, work, master_key=GivenKeys(TWO))
    session = runtime.session("s")
    batch = session.start_batch([ToolCall(id="c1", name="work")])
    async with fail_after(5):
        await runtime.signal(keys[0], None)
        (outcome,) = await batch
    assert (outcome.value, made) == (True, [1])

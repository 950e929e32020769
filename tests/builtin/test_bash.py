"""`bash`: scripts in a sandbox, over the session's files."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import fail_after
from toolwright import Policy, Rule, ToolCall, ToolDefinitionError
from toolwright.builtin.bash import STATE_KEY, BashLimits, bash, bash_tool
from toolwright.session.services.files import Files
from toolwright.stores.contracts.sessions import Quota, Quotas

QUICK = BashLimits(seconds=1, commands=2_000, loops=2_000, memory=4_000_000)


@pytest.fixture
def shell(open_runtime) -> Any:
    """A session with `bash`, and a way to run a script in it that gives the outcome."""

    class Shell:
        session: Any = None

        async def open(self, place: Any = ":memory:", limits: BashLimits | None = None, **options: Any) -> "Shell":
            self.runtime = await open_runtime(place, bash_tool(limits), **options)
            self.session = self.runtime.session("s")
            self.files = self.session.files
            return self

        async def run(self, script: str) -> Any:
            async with fail_after(15):
                (outcome,) = await self.session.run_batch([ToolCall(name="bash", arguments={"command": script})])
            return outcome

        async def out(self, script: str) -> str:
            outcome = await self.run(script)
            assert outcome.ok, outcome.text
            return outcome.value["stdout"]

    return Shell()


@pytest.mark.promise("BLT-02")
async def test_a_script_reads_and_changes_the_files_of_its_session(place, shell):
    await shell.open(place)
    await shell.files.write("/src/a.txt", "one\ntwo\n")
    await shell.files.write("/src/raw", b"\x00\xff")
    await shell.files.write("/old/gone", "x")
    outcome = await shell.run(
        "pwd; grep -n two src/a.txt; echo three >> src/a.txt; cp src/raw raw; rm -r old; mkdir -p new/deep; echo no >&2"
    )
    assert outcome.value == {
        "stdout": "/workspace\n2:two\n",
        "stderr": "no\n",
        "exit_code": 0,
        "cwd": "/workspace",
        "changed": ["/raw", "/src/a.txt"],
        "deleted": ["/old/gone", "/old"],
        "truncated": False,
        "left_out": [],
    }
    assert outcome.raw_output == "/workspace\n2:two\nno\n"
    assert await shell.files.read("/src/a.txt") == "one\ntwo\nthree\n"
    assert await shell.files.read_bytes("/raw") == b"\x00\xff"
    assert (await shell.files.stat("/new/deep")).directory
    assert [info.path for info in await shell.files.list("/")] == ["/new", "/raw", "/src"]


@pytest.mark.promise("BLT-02")
async def test_only_what_a_script_changed_is_written(shell, monkeypatch):
    await shell.open()
    for name in "abc":
        await shell.files.write(f"/{name}", name)
    written: list[str] = []
    plain = Files.write

    async def write(self: Files, path: str, content: Any, **options: Any) -> Any:
        written.append(path)
        return await plain(self, path, content, **options)

    monkeypatch.setattr(Files, "write", write)
    await shell.run("cat a; echo -n b > b; touch c; echo more >> c")
    assert written == ["/c"]


@pytest.mark.promise("BLT-02")
async def test_what_a_shell_remembers_is_kept_between_calls_and_across_runtimes(file, shell):
    await shell.open(file)
    await shell.run(
        "mkdir d; cd d; x=5; export Y=6; list=(1 2 3); declare -A map; map[k]=v; hi() { echo hi $1; }; "
        "alias q='echo Q'; shopt -s nullglob"
    )
    await shell.runtime.close()
    await shell.open(file)
    assert await shell.out("pwd; echo $x $Y ${list[1]} ${map[k]}; hi you; alias; shopt nullglob") == (
        "/workspace/d\n5 6 2 v\nhi you\nalias q='echo Q'\nnullglob       \ton\n"
    )
    other = shell.runtime.session("t")
    outcome = await other.call("bash", command="pwd; echo [$x]; hi")
    assert (outcome.value["stdout"], outcome.value["exit_code"]) == ("/workspace\n[]\n", 127)


async def test_links_and_modes_are_gone_after_the_call(shell):
    await shell.open()
    outcome = await shell.run("echo 'echo ran' > script; chmod +x script; ./script; ln -s /etc/passwd link")
    assert outcome.value["stdout"] == "ran\n"
    assert "links are not kept: /link" in outcome.value["stderr"]
    assert outcome.value["changed"] == ["/script"]
    outcome = await shell.run("ls; ./script")
    assert (outcome.value["stdout"], outcome.value["exit_code"]) == ("script\n", 126)


async def test_a_state_that_is_not_one_is_dropped_and_said_so(shell):
    await shell.open()
    await shell.session.kv.set(STATE_KEY, "bm90IGEgc3RhdGU=")
    outcome = await shell.run("echo on")
    assert (outcome.value["stdout"], outcome.value["stderr"]) == ("on\n", "bash: the state of earlier calls was lost\n")
    assert (await shell.run("echo on")).value["stderr"] == ""


async def test_a_state_that_is_too_large_is_not_kept(shell):
    await shell.open(limits=BashLimits(state_bytes=8_000))
    await shell.run("small=1")
    outcome = await shell.run("small=2; big=$(head -c 20000 /dev/urandom | base64)")
    assert "too large to keep" in outcome.value["stderr"]
    assert await shell.out("echo $small ${#big}") == "1 0\n"


@pytest.mark.promise("BLT-02")
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("while true; do :; done", "loop iterations|command count"),
        ("for ((;;)); do x=1; done", "loop iterations|command count"),
        ("f() { f; }; f", "function depth"),
        (":(){ :|:& };:", "timeout|depth|count"),
        ("sleep 60", "timeout"),
        ("x=a; for i in {1..40}; do x=$x$x; done", "memory"),
        ("echo {1..100000000}", "brace range"),
        ("bash -c 'while true; do :; done'", "loop iterations|command count"),
        ("eval 'eval \"sleep 60\"'", "timeout"),
        ("find / -exec sleep 60 \\;", "timeout"),
        ("dd if=/dev/zero of=big bs=1M count=1000", "budget"),
    ],
)
async def test_a_script_that_does_too_much_is_stopped_and_changes_nothing(shell, script, reason):
    await shell.open(limits=QUICK)
    outcome = await shell.run(f"echo x > made; var=1; {script}")
    assert outcome.failure.code == "limit", outcome.text
    assert outcome.failure.category == ("timeout" if "timeout" in outcome.failure.message else "resource_limit")
    assert any(word in outcome.failure.message for word in reason.split("|"))
    assert "None of its changes were kept" in outcome.text
    assert await shell.files.stat("/made") is None
    assert await shell.out("echo [$var]") == "[]\n"


@pytest.mark.promise("BLT-02")
@pytest.mark.parametrize(
    "script",
    [
        "yes | head -3",
        "yes > /dev/null",
        "seq 1 100000000 | tail -1",
        "awk 'BEGIN{while(1){x++}}'",
        "jq -n 'last(range(10000000000))'",
        "sed ':a;ba' <<< x",
        "printf '%1000000000d' 1",
        "cat /dev/zero | head -c 5",
        "cat /dev/urandom > r; rm r",
        "grep -E '(a+)+$' <<< aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!",
        "read x; cat",
        "kill -9 $$ 1; trap '' EXIT",
        "a[99999999999]=1",
    ],
)
async def test_what_would_never_end_elsewhere_ends_here(shell, script):
    await shell.open(limits=QUICK)
    await shell.run(script)  # within the bound of `run`
    assert await shell.out("echo still here") == "still here\n"


@pytest.mark.promise("BLT-02")
@pytest.mark.parametrize(
    "script",
    [
        "cat {host}",
        "cat < {host}",
        "cat ../../../../..{host}",
        "cd /; cat .{host}",
        "ln -s {host} l; cat l",
        "ln -s / r; cat r{host}",
        "ln -s {folder} d; cat d/{name}; ls d",
        "cat /proc/self/root{host} /proc/1/root{host} /proc/self/cwd/../{name}",
        "cat $(echo {host})",
        "cat <(cat {host})",
        "cat <<< $(< {host})",
        "source {host}; . {host}",
        "mapfile a < {host}; echo ${{a[@]}}",
        "exec 3< {host}; cat <&3",
        "find {folder} -type f -exec cat {{}} +",
        "tar cf - {host} | strings",
        "bash {host}; sh -c 'cat {host}'",
        "env -i cat {host}",
        "sudo cat {host}; su -c 'cat {host}'",
        "python3 -c 'print(open(\"{host}\").read())'; perl -e 'print `cat {host}`'",
        "awk '{{print}}' {host}; sed p {host}; grep -r known {folder}; jq -R . {host}; xxd {host}; od -c {host}",
        "cp {host} x; cat x; mv {host} y; cat y; dd if={host}; head {host}; tee < {host}",
        "git clone {folder}; curl file://{host}; wget file://{host}",
        "cat /dev/fd/3 /dev/mem /dev/sda; ls /dev /proc /sys",
        "echo changed > {host}; rm -rf {folder}; chmod 777 {host}",
    ],
)
async def test_no_script_reaches_a_file_of_the_host(shell, tmp_path: Path, script):
    host = tmp_path / "secret.txt"
    host.write_text("known-only-to-the-host")
    await shell.open(limits=QUICK)
    outcome = await shell.run(script.format(host=host, folder=tmp_path, name=host.name))
    assert "known-only" not in outcome.text + (outcome.raw_output or "")
    assert host.read_text() == "known-only-to-the-host"
    assert [entry.name for entry in tmp_path.iterdir()] == ["secret.txt"]


@pytest.mark.promise("BLT-02")
async def test_the_environment_and_accounts_of_the_host_are_not_there(shell, monkeypatch):
    monkeypatch.setenv("TOOLWRIGHT_TEST_TOKEN", "known-only-to-the-host")
    await shell.open()
    outcome = await shell.run(
        "env; printenv; set; export -p; declare -p; cat /proc/self/environ; echo $TOOLWRIGHT_TEST_TOKEN"
    )
    assert "known-only" not in outcome.text
    assert await shell.out("whoami; hostname; cat /etc/passwd || echo none") == "agent\nsandbox\nnone\n"


@pytest.mark.promise("BLT-02")
async def test_there_is_no_network_and_no_process_of_the_host(shell):
    arrived: list[Any] = []

    async def arrive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        arrived.append(writer)
        writer.close()

    server = await asyncio.start_server(arrive, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await shell.open(limits=QUICK)
    outcome = await shell.run(
        f"curl -s http://127.0.0.1:{port}/; wget -q http://127.0.0.1:{port}/; exec 3<>/dev/tcp/127.0.0.1/{port}; "
        f"nc 127.0.0.1 {port}; ssh -p {port} 127.0.0.1; http http://127.0.0.1:{port}; {sys.executable} -c 1; ps aux"
    )
    assert str(sys.executable) not in outcome.value["stdout"]
    server.close()
    await server.wait_closed()
    assert arrived == []


@pytest.mark.promise("RUN-10")
async def test_output_reaches_watchers_while_the_script_runs(shell):
    await shell.open()
    seen: list[tuple[str, str]] = []
    async with fail_after(10):
        with shell.session.subscribe() as events:
            call = asyncio.ensure_future(shell.run("echo one; echo two >&2; sleep 0.3; echo three"))
            async for event in events:
                if event.kind == "call.output":
                    assert seen or not call.done()
                    seen.append((event.stream, event.text))
                if event.kind == "call.finished":
                    break
        await call
    assert "".join(text for _, text in seen) == "one\ntwo\nthree\n"
    assert ("stderr", "two\n") in seen


async def test_output_is_cut_at_its_limit(shell):
    await shell.open(limits=BashLimits(output_bytes=1_000))
    outcome = await shell.run("for i in {1..500}; do echo line $i; echo err >&2; done; echo $i > made")
    assert outcome.value["truncated"]
    assert len(outcome.value["stdout"]) <= 1_000
    assert len(outcome.raw_output) <= 1_000
    assert await shell.files.read("/made") == "500\n"


@pytest.mark.promise("BLT-02", "SES-02")
async def test_a_file_that_is_read_only_stays_as_it_is_and_so_do_the_others(shell):
    await shell.open()
    await shell.files.write("/fixed", "as it is", readonly=True)
    for script in ("echo x > fixed; echo y > other", "rm fixed; echo y > other", "rm -rf /workspace"):
        outcome = await shell.run(script)
        assert (outcome.failure.category, outcome.failure.code) == ("permission_denied", "readonly")
    assert await shell.files.read("/fixed") == "as it is"
    assert await shell.files.stat("/other") is None
    assert await shell.out("cat fixed") == "as it is"


async def test_files_that_are_too_large_are_left_out_and_kept(shell):
    await shell.open(limits=BashLimits(file_bytes=1_000))
    await shell.files.write("/d/large", "x" * 1_100)
    await shell.files.write("/d/small", "x" * 200)
    outcome = await shell.run("ls d; rm -r d")
    assert outcome.value["stdout"] == "small\n"
    assert (outcome.value["left_out"], outcome.value["deleted"]) == (["/d/large"], ["/d/small"])
    assert (await shell.files.stat("/d/large")).size == 1_100
    outcome = await shell.run("mkdir -p d; echo x > d/large")
    assert outcome.failure.code == "conflict"
    assert (await shell.files.stat("/d/large")).size == 1_100


async def test_a_script_that_changes_too_many_bytes_changes_none(shell):
    await shell.open(limits=BashLimits(changed_bytes=1_000))
    outcome = await shell.run("head -c 900 /dev/zero > a; head -c 900 /dev/zero > b")
    assert (outcome.failure.category, outcome.failure.code) == ("resource_limit", "too_large")
    assert await shell.files.list("/") == []


@pytest.mark.promise("BLT-02", "SES-02")
@pytest.mark.parametrize(
    "script",
    [
        "touch 'b\\c'",
        "mkdir 'b\\c'",
        "touch ' '",
        "mkdir ...",
        "mkdir workspace; echo x > workspace/q",
        "echo x > workspace",
        "touch $'e\\u0301' $'\\u00e9'",
        "echo x > $'ol\\u0065\\u0301'",
    ],
)
async def test_a_name_that_a_session_cannot_have_is_refused_and_nothing_is_changed(shell, script):
    await shell.open()
    await shell.files.write("/old", "as it was")
    await shell.files.write("/olé", "as it was")
    outcome = await shell.run(f"echo x > a; {script}; rm old; echo x > z")
    assert (outcome.failure.category, outcome.failure.code) == ("invalid_arguments", "bad_name"), outcome.text
    assert "None of its changes were kept" in outcome.text
    assert [info.path for info in await shell.files.list("/")] == ["/old", "/olé"]
    assert (await shell.run("rm -r old; mkdir old; echo x > old/a")).ok


async def test_a_script_that_makes_too_many_files_says_how_many_were_kept(shell):
    await shell.open(quotas=Quotas(files=Quota(3, 1_000)))
    outcome = await shell.run("touch a b c d e")
    assert (outcome.failure.category, outcome.failure.code) == ("resource_limit", "quota")
    assert "Of 5 changes that the script made to files, the first 3 were kept" in outcome.text
    assert [info.path for info in await shell.files.list("/")] == ["/a", "/b", "/c"]


async def test_a_script_that_fails_or_does_not_parse_is_a_result_like_any_other(shell):
    await shell.open()
    outcome = await shell.run("echo kept > file; exit 7")
    assert (outcome.ok, outcome.value["exit_code"], outcome.value["changed"]) == (True, 7, ["/file"])
    outcome = await shell.run('echo "no end')
    assert outcome.value["exit_code"] != 0
    assert "unexpected EOF" in outcome.value["stderr"]


@pytest.mark.parametrize("script", ["", "x" * 65_537, None, 3])
async def test_what_is_no_script_is_refused(shell, script):
    await shell.open()
    assert (await shell.run(script)).failure.category == "invalid_arguments"


async def test_a_cancelled_script_stops_and_changes_nothing(shell):
    await shell.open()
    script = "echo x > made; echo on; sleep 15"
    async with fail_after(10):
        with shell.session.subscribe() as events:
            call = asyncio.ensure_future(shell.session.call("bash", command=script))
            async for event in events:
                if event.kind == "call.output":
                    break
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert await shell.files.stat("/made") is None


async def test_it_needs_no_approval_but_a_rule_may_deny_it(shell):
    definition = bash.definition
    assert (definition.kind, definition.approval, definition.display_name) == ("shell", "auto", "Run Bash")
    assert "executes_code" in definition.capabilities
    assert definition.hints.mutating
    rule = Rule("deny", capabilities={"executes_code"}, name="no code")
    await shell.open(policy=Policy(rules=[rule]))
    assert (await shell.run("echo x")).decided_by == "no code"


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"commands": -1}, {"loops": True}, {"memory": float("inf")}])
def test_limits_that_are_not_usable_are_refused(wrong):
    with pytest.raises(ToolDefinitionError, match=next(iter(wrong))):
        BashLimits(**wrong)

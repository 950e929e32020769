"""Rules on commands and writes inside the sandbox of `bash`: they hold where the effect happens.

The text of a script is judged before it runs. Here that judgement is blinded: the tool says that its script is in
another parameter, so that the rule finds no script and asks, and a person says yes. A script that is refused then is
refused by the sandbox.
"""

import asyncio
import base64
import itertools
import shlex
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effects.watching import waiting
from tests.support import fail_after
from toolwright import Policy, Rule, Runtime
from toolwright.builtin.bash import bash_tool

UNSEEN = bash_tool().with_definition(script="elsewhere")
"""`bash`, where the judgement before the run does not see the script."""


class Pair:
    """A session whose `bash` is judged by the sandbox alone, and one without rules."""

    def __init__(self, *rules: Rule) -> None:
        self._rules = rules

    async def __aenter__(self) -> "Pair":
        self.runtime = await Runtime.open(tools=[UNSEEN], policy=Policy(rules=self._rules))
        self.free_runtime = await Runtime.open(tools=[bash_tool()])
        self.ruled, self.free = self.runtime.session("s"), self.free_runtime.session("s")
        events = self.runtime.subscribe()
        async with fail_after(20):
            call = asyncio.ensure_future(self.ruled.call("bash", command=":"))
            await waiting(events)
            (approval,) = await self.runtime.approvals()
            await self.runtime.approve(approval.key, always={}, by="ann")
            assert (await call).ok
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.runtime.close()
        await self.free_runtime.close()

    async def reset(self) -> None:
        for session in (self.ruled, self.free):
            for info in await session.files.list("/"):
                await delete(session.files, info)
            await session.files.write("/data/x", "precious")
            await session.files.write("/config/app.conf", "as it was")

    async def state(self, session: Any) -> dict[str, bytes]:
        """The protected files that are still there, and what is in them."""
        found = {}
        for path in ("/data/x", "/config/app.conf"):
            if await session.files.stat(path) is not None:
                found[path] = await session.files.read_bytes(path)
        for info in await session.files.list("/config") if await session.files.stat("/config") else ():
            found[info.path] = b"" if info.directory else await session.files.read_bytes(info.path)
        return found


async def delete(files: Any, info: Any) -> None:
    if info.directory:
        for inner in await files.list(info.path):
            await delete(files, inner)
    await files.delete(info.path)


BEFORE = {"/data/x": b"precious", "/config/app.conf": b"as it was"}
DENY = Rule("deny", "bash", commands=["rm"], writes=["/config/*"], name="no harm", unknown="ask")

# --- spellings of a command, each of a script's text


def quoted(text: str) -> str:
    return shlex.quote(text)


def packed(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


counter = itertools.count()


def named(template: str) -> Callable[[str], str]:
    """Put the script into a template with names of its own; {s} is the script, {q} the script in quotes."""

    def spell(script: str) -> str:
        return (
            template.replace("{n}", f"n{next(counter)}")
            .replace("{p}", packed(script))
            .replace("{q}", quoted(script))
            .replace("{s}", script)
        )

    return spell


WRAPPERS = [
    named(template)
    for template in (
        "eval {q}",
        "bash -c {q}",
        "sh -c {q}",
        "bash -co pipefail {q}",
        "echo {p} | base64 -d | sh",
        "bash <<< {q}",
        "printf '%s\\n' {q} | bash -s",
        "source <(printf '%s\\n' {q})",
        ". <(printf '%s\\n' {q})",
        "bash <(printf '%s\\n' {q})",
        "printf '%s\\n' {q} > {n}.sh; bash {n}.sh",
        "printf '%s\\n' {q} > {n}.sh; source ./{n}.sh",
        "printf '%s\\n' {q} > {n}.sh; chmod +x {n}.sh; ./{n}.sh || bash {n}.sh",
        "{n}() { eval {q}; }; {n}",
        '{n}={q}; eval "${n}"',
        '{n}=({q}); eval "${{n}[0]}"',
        "({s}\n)",
        "{ {s}\n}",
        'echo "$({s}\n)"',
        'echo "${undefined:-$({s}\n)}"',
        "cat <({s}\n)",
        "cat <<END\n$({s}\n)\nEND",
        "if :; then {s}\nfi",
        "for i in 1; do {s}\ndone",
        "while :; do {s}\nbreak; done",
        "case x in x) {s}\n;; esac",
        "trap {q} EXIT",
        "true && {s}\n",
        "{ {s}\n} & wait",
        "env A=1 bash -c {q}",
        "command bash -c {q}",
        "nohup sh -c {q}",
        "timeout 5 bash -c {q}",
        "nice -n 1 bash -c {q}",
        "time bash -c {q}",
        "sudo bash -c {q}",
        "busybox sh -c {q}",
        "xargs -I% bash -c {q} <<< 1",
        "find /data -maxdepth 0 -exec bash -c {q} \\;",
        "exec bash -c {q}",
        "printf 'all:\\n\\tbash -c \"$$S\"\\n' > {n}.mk; S={q}; export S; make -f {n}.mk",
        "S={q} awk 'BEGIN { system(ENVIRON[\"S\"]) }'",
        'S={q} awk \'BEGIN { print ENVIRON["S"] | "sh" }\'',
        "shopt -s expand_aliases; alias {n}=eval\n{n} {q}",
        'set -- {q}; eval "$1"',
        'read -r {n} <<< {p}; eval "$(base64 -d <<< "${n}")"',
        'declare {n}={q}; eval "${n}"',
        "[[ -n $({s}\n) ]]",
        "{n}=$({s}\n)",
        ': "$({s}\n)"',
    )
]

REMOVALS = (
    "rm /data/x",
    "rm -f /workspace/data/x",
    "r\\m /data/x",
    "'r'm /data/x",
    '"rm" /data/x',
    "$'\\x72m' /data/x",
    "command rm /data/x",
    "a=rm; $a /data/x",
    "$(echo rm) /data/x",
    "${undefined:-rm} /data/x",
    'set -- rm /data/x; "$@"',
    'x=(rm /data/x); "${x[@]}"',
    "echo /data/x | xargs rm",
    "find /data -name x -exec rm {} \\;",
    "find /data -name x -exec rm {} +",
    "awk 'BEGIN { system(\"rm /data/x\") }'",
    "env rm /data/x",
    "busybox rm /data/x",
    "exec rm /data/x",
    "time rm /data/x",
    "nice rm /data/x",
    "timeout 5 rm /data/x",
    "cd /data && rm x",
    "printf '#!/bin/sh\\n# bashkit builtin: rm\\n' > e; chmod +x e; ./e /data/x",
    "printf '#!/bin/sh\\n# bashkit builtin: rm\\n' > e; install -m 755 e f; ./f /data/x",
    "printf '#!/bin/sh\\n# bashkit builtin: rm\\n' > e; chmod +x e; PATH=/workspace:$PATH; e /data/x",
    "printf '#!/bin/sh\\n# bashkit builtin: rm\\n' > e; mkfifo -m 755 f; cat e >> f; ./f /data/x",
    "printf '#!/bin/sh\\n# bashkit builtin: rm\\n' > e; find . -name e -exec chmod +x {} +; ./e /data/x",
    "printf '#!/bin/sh\\n# bashkit builtin: rm\\n' > e; mkdir -m 777 d; cp -a e d; ./d/e /data/x",
    "cp -p /bin/true e; printf '#!/bin/sh\\n# bashkit builtin: rm\\n' >> e; ./e /data/x",
    "/bin/rm /data/x",
    "/usr/bin/rm /data/x",
    "cd /bin && ./rm /data/x",
    "ln -s /bin/rm l; ./l /data/x",
    "hash -p /bin/rm h; h /data/x",
    "enable -n rm; rm /data/x",
    "BASH_ALIASES[z]='rm /data/x'; shopt -s expand_aliases\nz",
    "PS4='$(rm /data/x)'; set -x; :",
)

WRITES = (
    "echo new > {}",
    "echo new >> {}",
    "echo new | tee {}",
    "cp /data/x {}",
    "mv /data/x {}",
    "sed -i s/as/is/ {}",
    "rm -f {}",
    "unlink {}",
    "dd if=/data/x of={}",
    "truncate -s 0 {}",
    "install /data/x {}",
    "sort -o {} /data/x",
    'awk \'BEGIN { print "new" > "{}" }\'',
    "sed -n 'w {}' /data/x",
    "find /config -name app.conf -delete",
    "rm -r /config",
    "mv /config /elsewhere",
    "ln -s {} l; echo new > l",
    "ln -s /config d; echo new > d/app.conf",
    "cd /config; echo new > app.conf",
    "CDPATH=/; cd config; echo new > app.conf",
    "pushd /workspace/config; echo new > app.conf",
    "mkdir -p /config/deeper",
    "touch /config/another",
    "tar -c -f t.tar data; cd config; tar -x -f ../t.tar",
    "mkdir o; mv {} o/app.conf",
    "exec 3> {}; echo new >&3",
    "echo new | dd of={}",
    "split -b 100 /data/x /config/part",
    "tr a b < /data/x 1> {}",
    "printf 'new' >| {}",
    ": > {}",
    "gzip {}",
)

PATHS = (
    "/config/app.conf",
    "/workspace/config/app.conf",
    "config/app.conf",
    "./config/../config//app.conf",
    "../workspace/config/app.conf",
    "/data/../config/app.conf",
    "$HOME/config/app.conf",
    "/con*/app.conf",
)


@pytest.mark.promise("BLT-06", "AUTH-05")
@pytest.mark.parametrize("script", REMOVALS)
async def test_a_denied_command_does_not_run_however_it_is_spelled(script):
    async with Pair(DENY) as pair:
        await pair.reset()
        outcome = await pair.ruled.call("bash", command=f"echo began > began; {script}")
        assert await pair.state(pair.ruled) == BEFORE
        if outcome.ok:  # it never came to the command
            assert outcome.value["exit_code"] != 0 or "x" in outcome.value["stderr"], outcome.text
        else:
            assert (outcome.failure.category, outcome.failure.code) == ("permission_denied", "denied"), outcome.text
            assert outcome.decided_by == "no harm"
            assert "runs 'rm" in outcome.text
            assert await pair.ruled.files.stat("/began") is None


@pytest.mark.promise("BLT-06", "AUTH-05")
async def test_a_denied_write_is_not_kept_whatever_wrote_it():
    async with Pair(Rule("deny", "bash", writes=["/config/*"], name="no harm", unknown="ask")) as pair:
        effective = 0
        for write in WRITES:
            for path in PATHS if "{}" in write else ("",):
                script = write.replace("{}", path)
                await pair.reset()
                await pair.free.call("bash", command=script)
                outcome = await pair.ruled.call("bash", command=script)
                assert await pair.state(pair.ruled) == BEFORE, script
                if await pair.state(pair.free) != BEFORE:
                    effective += 1
                    assert not outcome.ok, script
                    assert (outcome.failure.code, outcome.decided_by) == ("denied", "no harm"), (script, outcome.text)
                    assert "writes '/config" in outcome.text
        assert effective > 100


@pytest.mark.promise("BLT-06", "AUTH-05")
async def test_no_generated_spelling_of_a_denied_command_or_write_has_an_effect():
    effective = denied = 0

    async with Pair(DENY) as pair:

        async def check(script: str) -> None:
            nonlocal effective, denied
            await pair.reset()
            await pair.free.call("bash", command=script)
            outcome = await pair.ruled.call("bash", command=script)
            assert await pair.state(pair.ruled) == BEFORE, script
            if await pair.state(pair.free) != BEFORE:
                effective += 1
                # Some find no such file under the rules, and end without having done anything.
                if not outcome.ok:
                    denied += 1
                    assert (outcome.failure.code, outcome.decided_by) == ("denied", "no harm"), (script, outcome.text)

        await generated(check)
    assert effective > 50
    assert denied > effective * 0.8


HARMS = [*REMOVALS, *(write.replace("{}", path) for write in WRITES for path in PATHS)]


def hide(harm: str, wrappers: list[Callable[[str], str]]) -> str:
    """A denied command or write in some layers of other commands."""
    script = harm
    for wrapper in wrappers:
        script = wrapper(script)
    return script


async def generated(check: Callable[[str], Awaitable[None]], examples: int = 120) -> None:
    """Check scripts that hide a denied command or write in some layers of other commands."""
    loop = asyncio.get_running_loop()

    @settings(max_examples=examples, deadline=None, database=None)
    @given(st.sampled_from(HARMS), st.lists(st.sampled_from(WRAPPERS), min_size=1, max_size=4))
    def look(harm: str, wrappers: list[Callable[[str], str]]) -> None:
        script = hide(harm, wrappers)
        if len(script) <= 60_000:
            asyncio.run_coroutine_threadsafe(check(script), loop).result(60)

    await asyncio.to_thread(look)


@pytest.mark.promise("BLT-06")
async def test_a_pattern_with_arguments_is_matched_against_the_words_as_they_are_when_it_runs():
    rule = Rule("deny", "bash", commands=["rm *data*", "gzip *-9*", "xargs *echo*"], name="not that", unknown="ask")
    async with Pair(rule) as pair:
        await pair.reset()
        for script in (
            "cd /; d=da; rm ${d}ta/x",
            'cd /data; p=/data/x; rm -f "$p"',
            "echo data/x | (cd /; xargs rm)",
            "bash -c 'rm /d*/x'",
            "find /data -name x -exec rm {} \\;",
            "o=-9; echo x | gzip $o > y",
            "e=ec; xargs ${e}ho <<< 1",
        ):
            outcome = await pair.ruled.call("bash", command=script)
            assert (outcome.failure.code, outcome.decided_by) == ("denied", "not that"), (script, outcome.text)
        # What the pattern does not match works as it would without the rule, whatever bytes go through it.
        raw = bytes(range(256)) * 100
        await pair.ruled.files.write("/raw", raw)
        outcome = await pair.ruled.call(
            "bash",
            command="cat raw | gzip -1 | gzip -d > same; echo a > b; A=1 rm b; echo $?; "
            "printf '1\\n2\\n' | xargs -n1 printf '<%s>'",
        )
        assert outcome.ok, outcome.text
        assert outcome.value["stdout"] == "0\n<1><2>"
        assert await pair.ruled.files.read_bytes("/same") == raw
        assert await pair.ruled.files.stat("/b") is None


@pytest.mark.promise("BLT-06")
async def test_an_effect_that_needs_approval_is_refused_where_nobody_was_asked_about_it():
    rules = [Rule("ask", "bash", commands=["curl"], writes=["*.lock"], name="look first")]
    async with Runtime.open(tools=[bash_tool()], policy=Policy(rules=rules, on_ask="deny")) as runtime:
        session = runtime.session("s")
        outcome = await session.call("bash", command="printf x > a.txt; curl http://x")
        assert (outcome.failure.code, outcome.decided_by) == ("needs_approval", "look first")
        # The judgement before the run does not know what `mv` makes of a name.
        await session.files.write("/d/a.lock", "x")
        outcome = await session.call("bash", command="echo a > b; mv d e")
        if outcome.ok:
            pytest.fail("the write of /e/a.lock was not noticed")
        assert (outcome.failure.code, outcome.decided_by) == ("needs_approval", "look first")
        assert await session.files.stat("/b") is None


@pytest.mark.promise("BLT-06")
async def test_what_a_person_approved_runs():
    rules = [Rule("ask", "bash", commands=["rm"], writes=["/config/*"], name="look first")]
    async with fail_after(20), Runtime.open(tools=[bash_tool()], policy=Policy(rules=rules)) as runtime:
        session, events = runtime.session("s"), runtime.subscribe()
        await session.files.write("/config/a", "x")
        call = asyncio.ensure_future(session.call("bash", command="rm /config/a"))
        await waiting(events)
        (approval,) = await runtime.approvals()
        await runtime.approve(approval.key, by="ann")
        assert (await call).ok
        assert await session.files.stat("/config/a") is None


@pytest.mark.promise("BLT-06")
async def test_rules_are_looked_at_in_their_order_inside_too():
    rules = [
        Rule("allow", "bash", commands=["rm *scratch*"], writes=["/scratch/*"], level=1, name="scratch"),
        Rule("deny", "bash", commands=["rm"], writes=["/*"], name="nothing else", unknown="ask"),
    ]
    async with Pair(*rules) as pair:
        await pair.reset()
        await pair.ruled.files.write("/scratch/a", "x")
        outcome = await pair.ruled.call("bash", command="cd /; rm s*/a /workspace/scratch/none; true")
        assert outcome.ok, outcome.text
        assert await pair.ruled.files.stat("/scratch/a") is None
        for script in ("rm data/x", "echo x > data/y", "echo x > /scratch/b; echo x > z"):
            outcome = await pair.ruled.call("bash", command=script)
            assert outcome.decided_by == "nothing else", (script, outcome.text)
        assert await pair.state(pair.ruled) == BEFORE


@pytest.mark.promise("BLT-06", "PROC-03")
async def test_functions_and_traps_of_an_earlier_call_are_judged_when_they_run():
    async with Pair(DENY) as pair:
        await pair.reset()
        assert (await pair.ruled.call("bash", command="f() { rm /data/x; }; g='rm /data/x'; h() { \"$@\"; }")).ok
        for script in ("f", "$g", "h rm /data/x", 'eval "$g"'):
            outcome = await pair.ruled.call("bash", command=script)
            assert (outcome.failure.code, outcome.decided_by) == ("denied", "no harm"), script
        assert await pair.state(pair.ruled) == BEFORE


@pytest.mark.promise("BLT-06", "AUTH-05")
@pytest.mark.parametrize(
    ("pattern", "script"),
    [
        ("/caf\u00e9/*", "mkdir /cafe\u0301; echo x > /cafe\u0301/x"),
        ("/cafe\u0301/*", "mkdir /caf\u00e9; echo x > /caf\u00e9/x"),
        ("\u212a.txt", "echo x > /K.txt"),
        ("K.txt", "echo x > /\u212a.txt"),
    ],
)
async def test_a_rule_on_writes_matches_every_form_of_the_same_characters(pattern, script):
    policy = Policy(rules=[Rule("deny", "bash", writes=[pattern], name="no")])
    async with fail_after(30), Runtime.open(capabilities=["virtual_bash"], policy=policy) as runtime:
        session = runtime.session("s")
        outcome = await session.call("bash", command=script)
        assert (outcome.failure.code, outcome.decided_by) == ("denied", "no")
        assert await session.files.list("/") == []

"""May a script run: rules that look at every command in it, however it is spelled."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.calls.authorise.scripts import CLASSES, FORBIDDEN, HARMLESS, SPELLINGS, STARTING, USUAL, WRITING
from tests.calls.authorise.shell_spellings import quoted
from tests.calls.running import run_one
from toolwright import Policy, PolicyError, Rule, Tool, ToolDefinitionError
from toolwright.calls.authorise.shell.patterns import Place, ScriptPatterns
from toolwright.calls.authorise.shell.read_script import read_script
from toolwright.calls.authorise.shell.script import MOST_BYTES

WORKSPACE = Place("/workspace")
DENY = Rule("deny", "bash", commands=["rm", "curl *", "git push*"], writes=["/etc/*"], name="no harm")


def shell(ran: list[str] | None = None, **options: Any) -> Tool:
    parameter = options.get("script", "command")

    def handler(args: Any) -> str:
        if ran is not None:
            ran.append(args.get(parameter, str))
        return "ran"

    return Tool.from_schema(
        name="bash", handler=handler, **{"kind": "shell", "approval": "auto", "directory": "/workspace", **options}
    )


async def decided(open_session: Any, rules: list[Rule], script: Any, **options: Any) -> tuple[str, str | None]:
    session = await open_session(shell(**options), policy=Policy(rules=rules, on_ask="deny"))
    outcome = await run_one(session, "bash", {"command": script})
    return ("ran" if outcome.failure is None else outcome.failure.code), outcome.decided_by


@pytest.mark.promise("AUTH-05")
@pytest.mark.parametrize("script", FORBIDDEN, ids=repr)
async def test_a_forbidden_command_is_refused_however_it_is_spelled(open_session, script):
    assert await decided(open_session, [DENY], script) == ("denied", "no harm")


@pytest.mark.promise("AUTH-05")
@pytest.mark.parametrize("script", HARMLESS, ids=repr)
async def test_a_harmless_script_is_not_refused(open_session, script):
    assert await decided(open_session, [DENY], script) == ("ran", None)


@pytest.mark.promise("AUTH-05")
@pytest.mark.parametrize("way", CLASSES)
async def test_a_forbidden_command_is_refused_in_whatever_way_it_is_run(open_session, way):
    session = await open_session(shell(), policy=Policy(rules=[Rule("deny", commands=["rm", "git push*"])]))
    for script in CLASSES[way]:
        outcome = await run_one(session, "bash", {"command": script})
        assert not outcome.ok, script


@pytest.mark.promise("AUTH-05")
@pytest.mark.parametrize("way", WRITING)
async def test_a_forbidden_path_is_not_written_in_whatever_way_that_is_done(open_session, way):
    session = await open_session(shell(), policy=Policy(rules=[Rule("deny", writes=["/etc/*"])]))
    for script in WRITING[way]:
        outcome = await run_one(session, "bash", {"command": script})
        assert not outcome.ok, script


@pytest.mark.promise("AUTH-05")
@pytest.mark.parametrize(("script", "directory"), STARTING, ids=repr)
async def test_a_relative_path_is_judged_by_the_directory_in_which_the_script_starts(open_session, script, directory):
    rules = [Rule("deny", writes=["/etc/*"], name="no harm")]
    assert (await decided(open_session, rules, script, directory=directory))[0] == "denied"


@pytest.mark.promise("AUTH-05")
async def test_scripts_of_the_usual_kind_are_not_refused(open_session):
    rules = [Rule("deny", commands=["rm", "git push*"]), Rule("deny", writes=["/etc/*"])]
    session = await open_session(shell(), policy=Policy(rules=rules))
    for script in USUAL:
        outcome = await run_one(session, "bash", {"command": script})
        assert outcome.ok, (script, outcome.failure)


@pytest.mark.promise("AUTH-05")
async def test_a_path_is_judged_as_the_session_spells_it_where_its_files_are_mounted(open_session):
    rules = [Rule("deny", writes=["/config/*"])]
    for script in ("> config/a", "> /workspace/config/a", "cd config; > a", "> con*/a", "mv /workspace /x"):
        assert (await decided(open_session, rules, script, mount="/workspace"))[0] == "denied", script
    for script in ("> a", "> /workspace/a", "cat config/a", "> /workspace/a/config"):
        assert (await decided(open_session, rules, script, mount="/workspace"))[0] == "ran", script
    rules = [Rule("deny", writes=["/workspace/config/*"])]
    assert (await decided(open_session, rules, "> config/a", mount="/workspace"))[0] == "denied"
    assert (await decided(open_session, rules, "> /config/a", mount="/workspace"))[0] == "denied"


@pytest.mark.promise("AUTH-05")
async def test_a_pattern_that_begins_without_a_slash_is_below_the_directory_of_the_tool(open_session):
    rules = [Rule("deny", writes=["src/*"])]
    for script in ("> src/a", "> /workspace/src/a", "cd src; > a", "cd /workspace; > ./src/b/c", "mv src x"):
        assert (await decided(open_session, rules, script))[0] == "denied", script
    for script in ("> a", "> /src/a", "> lib/src"):
        assert (await decided(open_session, rules, script))[0] == "ran", script


@pytest.mark.parametrize("option", ["directory", "mount"])
@pytest.mark.parametrize("wrong", ["work", "/a/../b", "/a/", 3])
def test_a_directory_of_a_shell_is_a_whole_path(option, wrong):
    with pytest.raises(ToolDefinitionError, match="whole path"):
        shell(**{option: wrong})
    with pytest.raises(ToolDefinitionError, match="kind='shell'"):
        Tool.from_schema(name="act", handler=lambda args: None, **{option: "/a"})


def test_the_tables_are_long_enough():
    assert len(set(FORBIDDEN)) == len(FORBIDDEN) >= 60
    assert len(set(HARMLESS)) == len(HARMLESS) >= 30


@pytest.mark.promise("AUTH-05")
async def test_the_refusal_says_what_in_the_script_is_denied(open_session):
    session = await open_session(shell(), policy=Policy(rules=[Rule("deny", commands=["rm"], reason="keep files")]))
    for script, why in [
        ("ls; echo $(/bin/r\\m x)", "it runs '/bin/r\\\\m x'"),
        ("$X y", "cannot be known: '$X' is known only when it runs"),
        ("echo 'a", "cannot be known: the script does not parse"),
    ]:
        outcome = await run_one(session, "bash", {"command": script})
        assert outcome.failure.message.startswith("Tool 'bash' may not run (rule 'deny *'): keep files (")
        assert why in outcome.failure.message


@pytest.mark.promise("AUTH-05")
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("rm x", "denied"),
        ("ls; $X", "needs_approval"),
        ("$X; rm x", "denied"),
        ('eval "$y"', "needs_approval"),
        ("echo '", "needs_approval"),
        ("ls", "ran"),
    ],
)
async def test_a_rule_may_ask_about_what_cannot_be_known(open_session, script, expected):
    rules = [Rule("deny", "bash", commands=["rm"], unknown="ask")]
    assert (await decided(open_session, rules, script))[0] == expected


@pytest.mark.promise("AUTH-05")
async def test_what_one_rule_would_ask_about_another_may_deny(open_session):
    rules = [Rule("deny", commands=["rm"], unknown="ask", name="first"), Rule("deny", commands=["curl"], name="second")]
    assert await decided(open_session, rules, "$X") == ("denied", "second")
    rules = [Rule("deny", commands=["rm"], unknown="ask", name="first"), Rule("deny", commands=["git"], name="second")]
    assert await decided(open_session, rules, "git $X; rm x") == ("denied", "first")


@pytest.mark.promise("AUTH-05")
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("ls -la", "ran"),
        ("ls | grep x; git log --oneline", "ran"),
        ("echo $(ls)", "needs_approval"),
        ("ls > out", "needs_approval"),
        ("ls > /tmp/out", "ran"),
        ("ls > /dev/null", "ran"),
        ("grep $x file", "ran"),
        ("git log $x", "ran"),
        ("git $x", "needs_approval"),
        ("git push", "needs_approval"),
        ("./ls", "needs_approval"),
        ("/tmp/ls", "needs_approval"),
        ("PATH=/tmp ls", "needs_approval"),
        ("ls; $X", "needs_approval"),
        ("ls $(curl x)", "needs_approval"),
        ("ls '", "needs_approval"),
        ("env ls", "needs_approval"),
        ("x=1", "ran"),
    ],
)
async def test_a_rule_that_allows_needs_everything_in_the_script_to_be_in_it(open_session, script, expected):
    allow = Rule("allow", "bash", commands=["ls", "grep", "git log*"], writes=["/tmp/*"], level=1)
    assert (await decided(open_session, [allow, Rule("ask", "bash")], script))[0] == expected


@pytest.mark.promise("AUTH-05")
async def test_patterns_look_at_the_arguments_once_quotes_are_gone(open_session):
    rules = [Rule("deny", commands=["git push*", "docker * --privileged*", "kubectl delete ?*"])]
    for script in (
        "git  push",
        "git 'pu'sh origin",
        "git pushd",
        "docker run --privileged x",
        "docker $a",
        "docker ps $a",
        "kubectl delete pod",
    ):
        assert (await decided(open_session, rules, script))[0] == "denied", script
    for script in ("docker run x", "kubectl delete", "git log 'git push'", "docker ps", "kubectl", "git log $a"):
        assert (await decided(open_session, rules, script))[0] == "ran", script


@pytest.mark.promise("AUTH-05")
async def test_the_tool_says_which_parameter_holds_the_script(open_session):
    ran: list[str] = []
    session = await open_session(shell(ran, script="code"), policy=Policy(rules=[DENY]))
    assert (await run_one(session, "bash", {"code": "rm x"})).decided_by == "no harm"
    assert (await run_one(session, "bash", {"code": "ls", "command": "rm x"})).ok
    # Without a script there is nothing to be sure of.
    for arguments in ({}, {"command": "ls"}, {"code": ["ls"]}, {"code": None}):
        assert (await run_one(session, "bash", arguments)).decided_by == "no harm"
    assert ran == ["ls"]


async def test_rules_about_commands_are_for_shells_and_for_tools_they_name(open_session):
    act = Tool.from_schema(name="act", handler=lambda args: "ran")
    for rule, expected in [
        (Rule("deny", commands=["rm"]), None),
        (Rule("deny", "a*", commands=["rm"]), None),
        (Rule("deny", "act", commands=["rm"], name="by name"), "by name"),
        (Rule("allow", "act", commands=["rm"], name="by name"), None),
    ]:
        session = await open_session(act, policy=Policy(rules=[rule]))
        assert (await run_one(session, "act", {"command": "ls"})).decided_by == expected


async def test_other_conditions_of_the_rule_hold_too(open_session):
    rule = Rule("deny", commands=["rm"], when=lambda request: request.arguments.get("force") is not True)
    session = await open_session(shell(), policy=Policy(rules=[rule]))
    assert not (await run_one(session, "bash", {"command": "rm x"})).ok
    assert (await run_one(session, "bash", {"command": "rm x", "force": True})).ok


@pytest.mark.parametrize(
    "wrong",
    [
        {"commands": ["/bin/rm"]},
        {"commands": [""]},
        {"commands": [" rm"]},
        {"commands": ["git  push"]},
        {"commands": [3]},
        {"writes": [""]},
        {"writes": [" /etc/*"]},
        {"writes": 3},
        {"unknown": "ask"},
        {"commands": ["rm"], "unknown": "allow"},
    ],
    ids=repr,
)
def test_a_rule_that_could_not_match_is_refused(wrong):
    with pytest.raises(PolicyError):
        Rule("deny", "bash", **wrong)


def test_what_allows_cannot_say_what_the_unknown_is():
    with pytest.raises(PolicyError, match="unknown"):
        Rule("allow", commands=["ls"], unknown="ask")


def test_only_shells_have_a_script():
    with pytest.raises(ToolDefinitionError, match="kind='shell'"):
        Tool.from_schema(name="act", handler=lambda args: None, script="code")
    assert shell().definition.script == "command"
    assert shell().with_definition(kind="function").definition.script is None


def filled(start: str, unit: str, end: str = "") -> str:
    return start + unit * ((MOST_BYTES - len(start) - len(end)) // len(unit)) + end


HARD = [
    *(
        filled("", unit)
        for unit in ("(", "$(", "{ ", "`", "ls;", "echo '", "<<E ", "eval ", "sudo ", ")", "x[)", "if ")
    ),
    *(
        filled("", unit)
        for unit in ("x[a@(", "((a=(;", "${}|", '"', "case x in ", "${", "[[ ", "!", "a\\\n", "$((x)) ")
    ),
    *(filled("", unit) for unit in ("a=$x;", "a[1]=2;", "[a", "cd a;", ">$x;", "> a/b;", "git $x;", "cat <<E\nE\n")),
    *(filled("", unit) for unit in ("[[ a -eq b ]];", "export a=b;", "alias a=ls;", "$'\\x41'", "time ", "coproc ")),
    *(filled("ls ", unit) for unit in ("*", "{a,b}", "{1..60} ", "{d,e}" * 6 + "{c}" * 20 + " ", "[a", "a ", "$x ")),
    *(
        filled("awk '", unit, "'")
        for unit in ("a|b ", "{ print $1 > 5 } ", '"" | ', ")/", "/a[", "x ) / 2\n", "print ")
    ),
    *(filled("sed '", unit, "'") for unit in ("s/a/b/;", "s/[", "1,2p;", "w x\n", "y/a/b/\n")),
    *(filled("cat <<E\n", unit, "\nE\n") for unit in ("$x ", "\\a", "a b\n", "`", "${x:-y} ")),
    *(filled('echo "', unit, '"') for unit in ("$x ", "a\\b", "${x:-'a'}")),
    *(filled("find . ", unit) for unit in ("-name a ", "-exec ls ; ")),
    *(
        filled(f"{name} ", unit)
        for name in ("tar", "sort", "git", "cp", "mv", "tee", "xargs")
        for unit in ("a ", "-a ")
    ),
    *(filled("mytool ", unit) for unit in ("/a ", "'a rm;' ", "--a=/b ")),
    *(filled("wget ", unit) for unit in ("-O a ", "$x ")),
    filled("for x in ", "a ", "; do echo $((x)); done"),
    filled("echo ", "${a:-", "x"),
    "env r" + "{m," * 10_000 + "}" * 10_000,
    "".join(f"x{at}=$x{at + 1};" for at in range(4_000)) + "echo $((x0))",
    "bash -c " * 500 + "ls",
    "a" * (MOST_BYTES + 1),
    "\ud800",
]
PATTERNS = ScriptPatterns(["rm", "git push*", "docker * --privileged*"], ["/etc/*", "*.lock", "/srv/*/x/*"])


@pytest.mark.promise("AUTH-05")
@pytest.mark.parametrize("script", HARD, ids=lambda script: repr(script[:16]))
def test_a_script_that_is_hard_to_read_is_judged_without_holding_the_loop(script):
    times = []
    for _ in range(10):  # a busy machine makes even CPU time long; the least of several tries is the cost
        read_script.cache_clear()
        began = time.thread_time()
        read = read_script(script)
        PATTERNS.surely(read, WORKSPACE)
        PATTERNS.perhaps(read, WORKSPACE)
        PATTERNS.always(read, WORKSPACE)
        times.append(time.thread_time() - began)
        if times[-1] < 0.05:
            break
    assert min(times) < 0.05


@pytest.mark.promise("AUTH-05")
async def test_judging_a_long_script_lets_the_event_loop_turn(open_session, loop_watch):
    rules = [DENY, Rule("ask", commands=["docker * --privileged*"]), Rule("allow", commands=["ls"], writes=["/tmp/*"])]
    session = await open_session(shell(), policy=Policy(rules=rules, on_ask="deny"))
    loop_watch.restart()
    for unit in ('"" | ', "{ print $1 > 5 } ", "a|b ", "/a["):
        assert not (await run_one(session, "bash", {"command": filled("awk '", unit, "'")})).ok


@pytest.mark.promise("AUTH-05")
@pytest.mark.parametrize("script", ["ls;" * 20_000, "(" * 5_000, "eval " * 10_000 + "rm", "\ud800", "`" * 30_000])
def test_a_script_that_is_too_long_to_read_is_refused(script):
    patterns = ScriptPatterns(["rm"], [])
    assert patterns.perhaps(read_script(script))


@pytest.mark.promise("AUTH-05")
def test_a_script_of_two_hundred_lines_with_long_texts_in_it_is_read():
    text = ["cat > notes <<'END'", *("line of a text, $(rm x)" for _ in range(2_000)), "END"]
    script = "\n".join([*text, *('grep -n "$x" src/a.py | sort > out.txt' for _ in range(200))])
    assert not ScriptPatterns(["rm"], ["/etc/*"]).perhaps(read_script(script), WORKSPACE)


LAYERS = [
    lambda script: f"( {script} )",
    lambda script: f"{{ {script}\n}}",
    lambda script: f"ls; {script}",
    lambda script: f"true && {script}",
    lambda script: f"echo $({script})",
    lambda script: f'echo "$({script})"',
    lambda script: f"cat <( {script} )",
    lambda script: f"if true; then {script}\nfi",
    lambda script: f"while {script}\ndo ls; done",
    lambda script: f"f() {{ {script}\n}}; f",
    lambda script: f"case x in *) {script}\n;; esac",
    lambda script: f"bash -c {quoted(script)}",
    lambda script: f"eval {quoted(script)}",
    lambda script: f"sudo -u root sh -ec {quoted(script)}",
    lambda script: f"env A=1 timeout 5 nice bash -c {quoted(script)}",
    lambda script: f"ls | xargs -n 1 sh -c {quoted(script)}",
    lambda script: f"find . -exec sh -c {quoted(script)} \\;",
    lambda script: f"trap {quoted(script)} EXIT",
    lambda script: f"bash <<'END OF {len(script)}'\n{script}\nEND OF {len(script)}\n",
    lambda script: f"x=$({script})",
    lambda script: f"echo ${{x:-$({script})}}",
    lambda script: f"ls # it is \\\n{script}",
]


@pytest.mark.promise("AUTH-05")
@given(st.sampled_from(SPELLINGS), st.lists(st.sampled_from(range(len(LAYERS))), max_size=5))
def test_no_number_of_layers_hides_a_forbidden_command(script, layers):
    for layer in layers:
        script = LAYERS[layer](script)
    patterns = ScriptPatterns(["rm"], ["/etc/*"])
    read = read_script(script)
    assert patterns.surely(read, WORKSPACE) or patterns.perhaps(read, WORKSPACE), script


@pytest.mark.promise("AUTH-05")
@given(
    st.sampled_from(["ls", "echo rm", "cat 'rm x'", "echo > /tmp/x"]), st.lists(st.sampled_from(range(16)), max_size=3)
)
def test_layers_around_a_harmless_command_stay_harmless(script, layers):
    for layer in layers:
        script = LAYERS[layer](script)
    patterns = ScriptPatterns(["rm"], ["/etc/*"])
    read = read_script(script)
    assert not patterns.surely(read, WORKSPACE), script
    assert not patterns.perhaps(read, WORKSPACE), script

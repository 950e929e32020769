"""Values that tools may use and models never see: a tool that gives one away gives away its placeholder."""

import base64
import json
import logging
import subprocess
import sys
from typing import NoReturn

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from tests.session.leaks import ENCODINGS
from toolwright import (
    Attachment,
    Failure,
    Image,
    Policy,
    RetryPolicy,
    Success,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    tool,
)
from toolwright.log_fields import log_fields
from toolwright.session.secrets.log_filter import guard_logs, unguard_logs
from toolwright.session.secrets.master_keys import GivenKeys
from toolwright.session.secrets.redactor import KnownSecrets
from toolwright.session.secrets.vault import Vault

VALUE = 'sk live/é+"4242"\\<z>&0123456789'
HANDLE = "[secret:k]"


def middle(text: str) -> str:
    """Enough of an encoded value to know it by: of base64, the ends may be another's."""
    return text[len(text) // 3 : 2 * len(text) // 3]


def events_of(subscription) -> list:
    found = []
    while (event := subscription.take()) is not None:
        found.append(event)
    return found


def all_shown(runtime, outcomes, events) -> str:
    """All that anybody can see of some calls."""
    shown = [repr(outcome) + outcome.text + repr(outcome.value) + repr(outcome.to_json()) for outcome in outcomes]
    shown += [repr(event) + repr(event.to_json()) for event in events]
    shown += [repr(record) + repr(record.arguments) for record in runtime.log]
    return "\n".join(shown)


def known(**secrets: str) -> KnownSecrets:
    found = KnownSecrets("s", Vault(GivenKeys()), lambda redactor: None)
    found.learn_at_once(secrets.items())
    return found


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
async def test_a_value_that_a_tool_gives_away_is_nowhere_to_be_seen(open_runtime, caplog, tmp_path, encode):
    spelled = encode(VALUE)
    data = base64.b64encode(f"<{spelled}>".encode()).decode()

    @tool
    async def value(ctx: ToolContext) -> dict:
        return {"a": [f"<{spelled}>"], spelled: 1, "b": spelled}

    @tool
    async def plain(ctx: ToolContext) -> str:
        return f"<{spelled}>"

    @tool
    async def extras(ctx: ToolContext) -> Success:
        files = [Attachment(f"{spelled}.txt", data, f"text/{spelled}"), Attachment("x", spelled)]
        return Success(1, raw_output=spelled, images=[Image(data, spelled)], attachments=files)

    @tool
    async def failure(ctx: ToolContext) -> Failure:
        return Failure(message=f"no: {spelled}", code=spelled, detail=f"because {spelled}")

    @tool
    async def refusal(ctx: ToolContext) -> None:
        raise ToolError(spelled, code=spelled, detail=spelled)

    @tool
    async def mishap(ctx: ToolContext) -> None:
        try:
            raise KeyError(spelled)
        except KeyError as error:
            raise ValueError(f"<{spelled}>") from error

    @tool(retry=RetryPolicy(attempts=2, base_delay=0), idempotent=True)
    async def again(ctx: ToolContext) -> None:
        raise ToolError(spelled, code=spelled, retry=True)

    @tool
    def in_a_thread(ctx: ToolContext) -> str:
        ctx.progress(1, 2, f"at {spelled}")
        ctx.output("stdout", spelled)
        ctx.output(spelled, f"<{spelled}>")
        return spelled

    @tool
    async def nested(ctx: ToolContext) -> list:
        inner = await ctx.call("take", it=spelled)
        return [inner.value, inner.text]

    @tool
    async def take(it: str) -> str:
        assert it == spelled  # A tool gets the value.
        return f"took {it}"

    @tool
    async def long(ctx: ToolContext) -> str:
        return f"{spelled}\n" * 5_000

    tools: list[Tool] = [value, plain, extras, failure, refusal, mishap, again, in_a_thread, nested, take, long]
    spills = tmp_path / "spills"
    runtime = await open_runtime(":memory:", *tools, policy=Policy(spill_dir=spills))
    session = runtime.session("s")
    await session.secrets.set("k", VALUE)
    events = session.subscribe()
    calls = [ToolCall(name=each.name, arguments={}) for each in tools if each.name != "take"]
    with caplog.at_level(logging.DEBUG):
        outcomes = await session.run_batch(calls)
    shown = all_shown(runtime, outcomes, events_of(events))
    shown += caplog.text + "".join(repr(vars(record)) for record in caplog.records)
    shown += "".join(path.read_text() for path in spills.iterdir())
    contents = b"".join(
        base64.b64decode(item.data, validate=True)
        for item in (*outcomes[2].images, *outcomes[2].attachments)
        if HANDLE not in item.data
    ).decode()
    for where in (shown, contents):
        assert spelled not in where
        assert middle(spelled) not in where
        assert middle(json.dumps(spelled)) not in where
        assert HANDLE in where
    assert [outcome.status for outcome in outcomes] == ["success"] * 3 + ["failure"] * 4 + ["success"] * 3
    assert outcomes[1].text.startswith("<")
    assert "Traceback" in caplog.text


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
def test_a_value_that_is_split_across_chunks_at_any_place_is_found(encode):
    secrets = known(k=VALUE)
    spelled = encode(VALUE)
    text = f"before {spelled} after"
    whole = secrets.text(text)
    assert middle(spelled) not in whole
    assert whole.startswith("before ")
    assert whole.endswith(" after")
    assert HANDLE in whole
    for at in range(len(text) + 1):
        stream = secrets.stream()
        assert stream.feed(text[:at]) + stream.feed(text[at:]) + stream.end() == whole
    stream = secrets.stream()
    assert "".join([*map(stream.feed, text), stream.end()]) == whole


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize("value", [VALUE, VALUE * 9])
@pytest.mark.parametrize("width", [76, 64])
def test_a_value_in_base64_that_is_broken_into_lines_is_found_wherever_they_break(value, width):
    secrets = known(k=value)
    data = value.encode()
    for before in range(60):
        encoded = base64.b64encode(b"x" * before + data + b"y" * 70).decode()
        shown = secrets.text("\n".join(encoded[at : at + width] for at in range(0, len(encoded), width)))
        assert HANDLE in shown
        left = shown.replace("\n", "")
        # Of both ends, some bits are a neighbour's.
        own = encoded[(8 * before + 5) // 6 : 8 * (before + len(data)) // 6]
        assert not any(own[at : at + 8] in left for at in range(len(own) - 7))


texts = st.text(st.sampled_from('ab c\\"%/é\n9'), max_size=30)
values = st.text(st.sampled_from('ab c\\"%/é\n9'), min_size=4, max_size=12).filter(lambda value: len(value.strip()) > 3)


@pytest.mark.promise("SES-03")
@given(
    values=st.lists(values, min_size=1, max_size=4),
    parts=st.lists(st.tuples(texts, st.integers(0, 3)), max_size=6),
    cuts=st.lists(st.integers(0, 400)),
    encode=st.sampled_from(sorted(ENCODINGS)),
)
@example(values=["abcab", "cabab"], parts=[("", 0), ("ab", 1)], cuts=[3], encode="plain")
def test_nothing_gets_past_in_whatever_pieces_it_comes(values, parts, cuts, encode):
    secrets = known(**{f"name{number}": value for number, value in enumerate(values)})
    text = "".join(before + ENCODINGS[encode](values[which % len(values)]) for before, which in parts)
    stream = secrets.stream()
    pieces = []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(text)], strict=True):
        pieces.append(stream.feed(text[start:end]))
    pieces.append(stream.end())
    for shown in ("".join(pieces), secrets.text(text), json.loads(secrets.json(json.dumps(text).encode()))):
        left = shown
        for number in range(len(values)):
            left = left.replace(f"[secret:name{number}]", "\0")
        for value in values:
            assert value not in left
            assert ENCODINGS["hex"](value) not in left


@given(st.text(max_size=300), st.lists(st.integers(0, 300)))
def test_text_without_secrets_goes_through_as_it_is(text, cuts):
    secrets = known(k="correct horse battery staple")
    assume("[" not in text)
    stream = secrets.stream()
    pairs = zip([0, *sorted(cuts)], [*sorted(cuts), len(text)], strict=True)
    assert "".join(stream.feed(text[start:end]) for start, end in pairs) + stream.end() == text
    assert secrets.text(text) is text


def test_a_stream_holds_back_only_what_may_be_a_secret():
    stream = known(k="correct horse").stream()
    assert stream.feed("it is cor") == "it is "
    assert stream.feed("rect, or") == "correct, or"
    assert stream.feed(" corr") == " "
    assert (stream.end(), stream.end()) == ("corr", "")


@pytest.mark.promise("SES-03")
def test_values_that_overlap_are_redacted_together():
    secrets = known(a="abcdefgh", b="efghijkl", c="cdef", d="abcdefghijklmnop-long")
    assert secrets.text("<abcdefghijkl>") == "<[secret:a][secret:b]>"
    assert secrets.text("<abcdefgh>") == "<[secret:a]>"
    for at in range(14):
        stream = secrets.stream()
        shown = stream.feed("<abcdefghijkl>"[:at]) + stream.feed("<abcdefghijkl>"[at:]) + stream.end()
        assert not any(part in shown for part in ("ab", "cd", "ef", "gh", "ij", "kl"))


def test_text_that_is_nothing_but_a_secret_over_and_over_is_redacted_block_by_block():
    secrets = known(k="aaaa")
    assert "a" not in secrets.text("a" * 1_000_001)
    text = ("x" * 262_140 + "correct horse") * 3
    assert known(k="correct horse").text(text) == ("x" * 262_140 + "[secret:k]") * 3


@pytest.mark.promise("SES-03")
@pytest.mark.parametrize(
    ("value", "secret", "expected"),
    [
        (12345678, "12345678", HANDLE),
        ({"pin": [912345678.5, True, None]}, "12345678", {"pin": [f"9{HANDLE}.5", True, None]}),
        (["left", "right"], 'left","right', f'["{HANDLE}"]'),
        (True, "true", HANDLE),
        ({"a": {"b": "x"}}, '"b":"x"', '{"a":{' + HANDLE + "}}"),
    ],
)
async def test_a_value_that_is_no_text_is_redacted_too(open_runtime, value, secret, expected):
    @tool
    async def give() -> object:
        return value

    runtime = await open_runtime(":memory:", give)
    await runtime.session("s").secrets.set("k", secret)
    outcome = await runtime.session("s").call("give")
    assert outcome.value == expected
    assert secret not in outcome.text


async def test_a_very_deep_value_is_redacted_too(open_runtime):
    @tool
    async def give() -> object:
        value: object = VALUE
        for _ in range(100):
            value = [value]
        return value

    runtime = await open_runtime(":memory:", give)
    await runtime.session("s").secrets.set("k", VALUE)
    assert HANDLE in (await runtime.session("s").call("give")).text


@pytest.mark.promise("SES-03")
async def test_a_secret_that_no_tool_has_read_in_this_process_is_redacted(file, open_runtime):
    @tool
    async def echo(text: str) -> str:
        return text

    runtime = await open_runtime(file)
    await runtime.session("s").secrets.set("k", VALUE)
    await runtime.close()
    runtime = await open_runtime(file, echo)
    session = runtime.session("s")
    events = session.subscribe()
    outcomes = await session.run_batch([ToolCall(name="echo", arguments={"text": VALUE})])
    assert outcomes[0].value == HANDLE
    assert middle(VALUE) not in all_shown(runtime, outcomes, events_of(events))


@pytest.mark.promise("SES-03")
async def test_a_replayed_outcome_is_redacted_also_when_the_secret_came_later(place, open_runtime):
    @tool
    async def mint() -> str:
        return VALUE

    runtime = await open_runtime(place, mint)
    session = runtime.session("s")
    call = ToolCall(id="c1", name="mint", arguments={})
    assert (await session.run_batch([call]))[0].value == VALUE
    await session.secrets.set("k", VALUE)
    (again,) = await session.run_batch([call])
    assert (again.replayed, again.value, again.text) == (True, HANDLE, HANDLE)


@pytest.mark.promise("SES-03")
async def test_a_replayed_outcome_stays_redacted_when_the_secret_is_gone(file, open_runtime):
    @tool
    async def leak(ctx: ToolContext) -> str | None:
        return await ctx.secrets.get("k")

    call = ToolCall(id="c1", name="leak", arguments={})
    runtime = await open_runtime(file, leak)
    await runtime.session("s").secrets.set("k", VALUE)
    await runtime.session("s").run_batch([call])
    await runtime.session("s").secrets.delete("k")
    await runtime.close()
    runtime = await open_runtime(file, leak)
    (again,) = await runtime.session("s").run_batch([call])
    assert (again.replayed, again.value) == (True, HANDLE)


@pytest.mark.promise("SES-03")
async def test_a_value_is_redacted_from_the_moment_it_is_set_and_when_it_was_replaced(place, open_runtime):
    @tool
    async def work(ctx: ToolContext) -> list:
        await ctx.secrets.set("k", "first value")
        await ctx.output("stdout", "first value, ")
        await ctx.secrets.set("k", "second value")
        await ctx.output("stdout", "second va")
        await ctx.secrets.delete("k")
        await ctx.output("stdout", "lue")
        return ["first value", "second value"]

    runtime = await open_runtime(place, work)
    events = runtime.subscribe()
    outcome = await runtime.session("s").call("work")
    assert outcome.value == [HANDLE, HANDLE]
    found = events_of(events)
    assert "".join(event.text for event in found if event.kind == "call.output") == f"{HANDLE}, {HANDLE}"
    kinds = [event.kind for event in found]
    assert kinds.index("call.finished") > max(at for at, kind in enumerate(kinds) if kind == "call.output")


@pytest.mark.promise("SES-03")
async def test_what_a_stream_held_back_comes_before_the_end_of_the_call(place, open_runtime):
    @tool
    async def work(ctx: ToolContext) -> None:
        await ctx.output("stdout", VALUE[:8])
        await ctx.output("stderr", VALUE[:3])

    runtime = await open_runtime(place, work)
    await runtime.session("s").secrets.set("k", VALUE)
    events = runtime.subscribe()
    await runtime.session("s").call("work")
    found = [(e.kind, e.stream, e.text) if e.kind == "call.output" else e.kind for e in events_of(events)]
    assert found[2:5] == [
        ("call.output", "stdout", VALUE[:8]),
        ("call.output", "stderr", VALUE[:3]),
        "call.finished",
    ]


@pytest.mark.promise("SES-06")
async def test_a_session_redacts_its_own_secrets_and_no_other(place, open_runtime):
    @tool
    async def echo(text: str) -> str:
        return text

    runtime = await open_runtime(place, echo)
    await runtime.session("s").secrets.set("k", "value of s")
    await runtime.session("t").secrets.set("k", "value of t")
    text = "value of s, value of t"
    assert (await runtime.session("s").call("echo", text=text)).value == f"{HANDLE}, value of t"
    assert (await runtime.session("t").call("echo", text=text)).value == f"value of s, {HANDLE}"
    assert (await runtime.session("u").call("echo", text=text)).value == text


@pytest.mark.promise("SES-03")
async def test_a_value_that_fits_its_schema_is_no_failure_because_its_handle_would_not(place, open_runtime):
    @tool
    async def token(ctx: ToolContext) -> int:
        return 12345678

    runtime = await open_runtime(place, token)
    await runtime.session("s").secrets.set("k", "12345678")
    outcome = await runtime.session("s").call("token")
    assert (outcome.ok, outcome.value) == (True, HANDLE)


@pytest.mark.promise("SES-03")
async def test_hooks_and_projectors_see_handles_and_cannot_bring_a_value_back(place, open_runtime):
    seen = []

    def after(call, outcome):
        seen.append(outcome.text)

    @tool
    async def leak() -> str:
        return f"it is {VALUE}"

    runtime = await open_runtime(place, leak, after=[after], projector=lambda outcome: f"{outcome.text} or {VALUE}")
    await runtime.session("s").secrets.set("k", VALUE)
    outcome = await runtime.session("s").call("leak")
    assert seen == [f"it is {HANDLE}"]
    assert outcome.text == f"it is {HANDLE} or {HANDLE}"


@pytest.mark.promise("SES-03")
async def test_a_person_who_approves_sees_no_value(place, open_runtime):
    @tool(approval="required")
    async def login(token: str) -> bool:
        return token == VALUE

    runtime = await open_runtime(place, login)
    session = runtime.session("s")
    await session.secrets.set("k", VALUE)
    events = session.subscribe()
    batch = session.start_batch([ToolCall(name="login", arguments={"token": VALUE})])
    async for event in events:
        if event.kind == "call.waiting":
            break
    (approval,) = await runtime.approvals()
    assert approval.arguments == {"token": HANDLE}
    await runtime.approve(approval.key)
    assert (await batch)[0].value is True


@pytest.mark.promise("SES-03")
def test_a_line_of_a_value_and_a_value_without_its_blanks_are_redacted():
    pem = "-----BEGIN KEY-----\nMIIEpAIBAAKCAQEA1234\nq83vASNFZ4mrze8BI0VniQ==\n-----END KEY-----\n"
    secrets = known(pem=pem, token="  hunter22\n")
    assert secrets.text(pem) == "[secret:pem]"
    assert secrets.text("3: q83vASNFZ4mrze8BI0VniQ==") == "3: [secret:pem]"
    assert secrets.text("hunter22!") == "[secret:token]!"


def test_a_handle_fits_into_json_whatever_the_secret_is_called():
    secrets = known(**{'a"b\\c]': "hunter22"})
    assert json.loads(secrets.json(b'{"x":"hunter22"}')) == {"x": "[secret:a_b_c_]"}
    assert secrets.text('{"x":"hunter22"}') == '{"x":"[secret:a_b_c_]"}'


def test_a_picture_is_not_spoilt_by_a_few_bytes_that_look_like_a_short_secret():
    secrets = known(short="abcd", long="correct horse")
    picture = b"\x89PNG\xff\xfe..abcd.." + bytes(range(256))
    assert secrets.content(picture, sparing=True) is picture
    assert secrets.content(b"\xff correct horse \xfe", sparing=True) == b"\xff [secret:long] \xfe"
    assert secrets.content(b"text abcd", sparing=False) == b"text [secret:short]"


async def test_output_that_comes_from_another_process_is_redacted(open_runtime):
    @tool(isolation="process")
    def work(ctx: ToolContext, one: str, two: str) -> str:
        ctx.output("stdout", one)
        ctx.output("stdout", two)
        return one + two

    runtime = await open_runtime(":memory:", work)
    await runtime.session("s").secrets.set("k", VALUE)
    events = runtime.subscribe()
    outcome = await runtime.session("s").call("work", one=VALUE[:9], two=VALUE[9:])
    assert outcome.value == HANDLE
    assert "".join(event.text for event in events_of(events) if event.kind == "call.output") == HANDLE


@pytest.mark.promise("SES-03")
async def test_logs_are_left_alone_once_the_runtime_is_closed(open_runtime, caplog):
    log = logging.getLogger("toolwright.calls")
    runtime = await open_runtime(":memory:")
    await runtime.session("s").secrets.set("k", VALUE)
    log.error("it is %s", VALUE)
    await runtime.close()
    try:
        raise ValueError("after")
    except ValueError:
        log.exception("it is %s", "over")
    assert [record.getMessage() for record in caplog.records] == [f"it is {HANDLE}", "it is over"]
    assert caplog.records[1].exc_info is not None


@pytest.mark.promise("SES-03")
async def test_every_log_of_ours_is_redacted(open_runtime, caplog):
    runtime = await open_runtime(":memory:")
    await runtime.session("s").secrets.set("k", VALUE)
    ours = [name for name in logging.root.manager.loggerDict if name.startswith("toolwright.")]
    assert "toolwright.background" in ours
    for name in ours:
        logging.getLogger(name).warning("it is %s", VALUE)
    assert {record.getMessage() for record in caplog.records} == {f"it is {HANDLE}"}


def test_a_session_without_secrets_loads_no_library_for_them():
    program = (
        "import asyncio, sys\n"
        "from toolwright import Runtime, tool\n"
        "@tool\n"
        "async def echo(text: str) -> str:\n"
        "    return text\n"
        "async def main():\n"
        "    async with Runtime.open(sys.argv[1], tools=[echo]) as runtime:\n"
        "        await runtime.session('s').call('echo', text='x')\n"
        "        await runtime.session('s').secrets.list()\n"
        "asyncio.run(main())\n"
        "print(sorted({'ahocorasick_rs', 'cryptography'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program, ":memory:"], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.promise("SES-03", "SES-01")
async def test_a_message_of_a_tool_is_redacted_and_one_of_the_host_is_as_it_was_said(place, open_runtime):
    @tool
    async def say(ctx: ToolContext) -> str:
        message = await ctx.messages.append([f"it is {VALUE}"], metadata={"a": {VALUE: VALUE}})
        return message.content[0]

    runtime = await open_runtime(place, say)
    session = runtime.session("s")
    await session.secrets.set("k", VALUE)
    await session.call("say")
    await session.messages.append(VALUE, sender="user")
    found = await session.messages.list()
    assert [message.content for message in found] == [[f"it is {HANDLE}"], VALUE]
    assert found[0].metadata == {"a": {HANDLE: HANDLE}}


@pytest.mark.promise("SES-03", "SES-08")
async def test_a_model_that_a_tool_asks_reads_handles(place, open_runtime):
    asked = []

    class Model:
        async def complete(self, request):
            asked.append(repr(request))
            return VALUE

    @tool
    async def ask(ctx: ToolContext) -> bool:
        await ctx.complete("text", f"what of {VALUE}?", stop=[VALUE])
        return await ctx.complete("list", [{"role": "user", "content": [VALUE]}]) == VALUE

    runtime = await open_runtime(place, ask, model=Model())
    await runtime.session("s").secrets.set("k", VALUE)
    assert (await runtime.session("s").call("ask")).value is True
    assert len(asked) == 2
    for request in asked:
        assert HANDLE in request
        assert middle(VALUE) not in request


@pytest.mark.promise("SES-03", "SES-09")
async def test_what_a_tool_takes_into_a_child_session_is_redacted_there(file, open_runtime):
    @tool
    async def use(ctx: ToolContext, token: str) -> str:
        await ctx.output("stdout", token)
        await ctx.messages.append(token)
        return token if token != VALUE else f"used {token}"

    @tool
    async def delegate(ctx: ToolContext) -> list:
        child = ctx.open_child("helper")
        first = await child.call("use", token=await ctx.secrets.get("k"))
        await ctx.secrets.set("later", "set while the child is open")
        await child.secrets.set("k", "of the child, by the same name")
        second = await child.call("use", token="set while the child is open")
        third = await child.call("use", token="of the child, by the same name")
        return [first.text, second.text, third.text]

    runtime = await open_runtime(file, use, delegate, events_file=file.parent / "events.jsonl")
    session = runtime.session("s")
    await session.secrets.set("k", VALUE)
    events = runtime.subscribe()
    (outcome,) = await session.run_batch([ToolCall(id="c1", name="delegate")])
    assert outcome.value == [f"used {HANDLE}", "[secret:later]", HANDLE]
    shown = all_shown(runtime, [outcome], events_of(events)).encode()
    await runtime.close()
    for data in (shown, *(path.read_bytes() for path in file.parent.iterdir() if path.suffix != ".key")):
        for form in (VALUE.encode(), json.dumps(VALUE).encode(), b"while the child", b"by the same name"):
            assert form not in data


@pytest.mark.promise("SES-03", "OUT-03")
async def test_a_value_in_a_preview_that_is_cut_in_it_is_nowhere_to_be_seen(open_runtime):
    token = "Zq8vKx2m-Lw9pTz4rNb7-Yc5hJd3gFs6-Mu1"

    @tool
    async def number(before: int) -> int:
        return "x" * before + token  # type: ignore[return-value]

    @tool
    async def names(before: int) -> dict[str, int]:
        return {"x" * before + token: "y"}  # type: ignore[dict-item]

    @tool
    async def inner(count: int) -> int:
        return count

    @tool
    async def outer(before: int, ctx: ToolContext) -> str:
        return (await ctx.call("inner", count="x" * before + token)).text

    runtime = await open_runtime(number, names, inner, outer)
    session = runtime.session("s")
    await session.secrets.set("k", token)
    subscription = runtime.subscribe()
    calls = [
        ToolCall(name=name, arguments={"before": before})
        for name in ("number", "names", "outer")
        for before in range(75, 121, 3)
    ]
    outcomes = await session.run_batch(calls)
    assert {outcome.failure.code for outcome in outcomes if outcome.failure is not None} == {"invalid_output"}
    shown = all_shown(runtime, outcomes, events_of(subscription))
    assert "xxx" in shown
    pieces = [token[at : at + 5] for at in range(len(token) - 4)]
    assert [piece for piece in pieces if piece in shown] == []


class CountsSearches:
    """Looks for one secret, and counts how often."""

    def __init__(self) -> None:
        self.searches = 0

    def text(self, text: str) -> str:
        self.searches += 1
        return text.replace(VALUE, HANDLE) if VALUE in text else text

    def stream(self) -> NoReturn:
        raise AssertionError("no line is that long")


@pytest.mark.promise("SES-03")
def test_a_log_line_is_searched_once_for_the_secrets_of_each_session(caplog):
    # A service has thousands of sessions with secrets, and a line for each request.
    sessions = [CountsSearches() for _ in range(5)]
    for each in sessions:
        guard_logs(each)
    log = logging.getLogger("toolwright.http")
    try:
        fields = log_fields("http.answered", session="s", path="/v1/x", method="GET", route="/v1/{x}", caller="ann")
        with caplog.at_level(logging.INFO, "toolwright.http"):
            log.info("A request was answered: %s", "x", extra=fields)
            assert [each.searches for each in sessions] == [1] * 5
            log.info("It has %s", VALUE, extra=log_fields("http.answered", path=f"/v1/{VALUE}"))
    finally:
        for each in sessions:
            unguard_logs(each)
    assert caplog.messages == ["A request was answered: x", f"It has {HANDLE}"]
    assert caplog.records[1].path == f"/v1/{HANDLE}"

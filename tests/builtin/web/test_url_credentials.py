"""A user name or password in a URL is refused, and stands in nothing that is kept or told of the call."""

import logging
import time

import pytest

from tests.builtin.web.sites import Web, response
from tests.session.leaks import files_beside
from tests.support import fail_after
from toolwright import Policy, Rule, Runtime, ToolCall, ToolContext, tool
from toolwright.builtin.web import web_fetch
from toolwright.builtin.web.url_credentials import screen_credentials
from toolwright.calls.hooks import ReplaceArguments

SECRET = "hunter2-s3cret"
URLS = [
    "https://me:{secret}@pages.example/",
    "https://{secret}@pages.example/",
    "https://{secret}:x@pages.example/",
    "HTTPS://me:{secret}@PAGES.example:8080/a?b#c",
    "ftp://me:{secret}@pages.example/",
    "https:me:{secret}@pages.example/",
    "https:/me:{secret}@pages.example/",
    "https:////me:{secret}@pages.example/",
    "//me:{secret}@pages.example/",
    "me:{secret}@pages.example",
    " https://me:{secret}@pages.example/",
    "https://me:{secret}\\@pages.example/",
    "https:\\\\me:{secret}@pages.example/",
    "https://me:{secret}%40pages.example/",
    "https://me:{secret}\uff20pages.example/",
    "https://me:{secret}@pages example/",
    "https://me:{secret}@evil@pages.example/",
    "https://me:pa/{secret}@pages.example/",
    "https://me:pa?{secret}@pages.example/",
    "https://me:pa#{secret}@pages.example/",
    "https://me:1234567/{secret}@pages.example/",
    'https://me:"{secret}\\"@pages.example/',
    "https://archive.example/2020/https://me:{secret}@pages.example/",
    "https://archive.example/?of=https://me:{secret}@pages.example/",
    "https://archive.example/?of=https%3A%2F%2Fme%3A{secret}%40pages.example%2F",
    "https://archive.example/?of=https%3a%2f%2f{secret}%40pages.example",
    "https://archive.example/?of=https://me:{secret}%40pages.example/",
    "https://archive.example/?of=a%3Fof%3Dhttps%253A%252F%252Fme%253A{secret}%2540pages.example",
    "https://archive.example/?of=https%3A%2F%2Fme%3A{secret}%EF%BC%A0pages.example",
    "https://me:{secret}@a.example/https://you:{secret}@b.example/",
    "https://me:{secret}@pages.example/" + "a" * 5_000,
]
ARGUMENTS = [
    *({"url": url} for url in URLS),
    {"url": URLS[0], "format": "no such"},
    {"url": URLS[0], "max_bytes": -1, "more": True},
    {"uri": URLS[0]},
    {"url": [URLS[0]]},
    {"url": {"of": {URLS[0]: 1}}},
    '{"url": "https://me:{secret}@pages.example/"',
    '"https://me:{secret}@pages.example/"',
    '{"format": "text", "url": "https://me:{secret}@pages.example/"}',
]


def filled(value):
    """The arguments, with the secret in them."""
    if isinstance(value, str):
        return value.replace("{secret}", SECRET)
    if isinstance(value, dict):
        return {filled(key): filled(each) for key, each in value.items()}
    return [filled(each) for each in value] if isinstance(value, list) else value


async def check(folder, calls, *, tools=(web_fetch,), code="credentials_refused", **options):
    """Run calls that have a secret, and look at all that there is of them afterwards."""
    store = folder / "agent.db"
    async with fail_after(20), Runtime.open(store, tools=tools, events_file=folder / "events", **options) as runtime:
        watched = runtime.subscribe()
        outcomes = await runtime.session("s").run_batch(calls)
        records = list(runtime.log)
        watched.close()
        seen = [event async for event in watched]
        told = [repr(each) for each in (*outcomes, *seen, *records)]
        told += [text for outcome in outcomes for text in (outcome.text, str(outcome.to_json()))]
        told += [str(record.arguments) for record in records]
        beside = list(files_beside(store))
    for text in told:
        assert SECRET not in text
    for name, content in [*beside, *files_beside(store)]:
        assert SECRET.encode() not in content, name
    assert [outcome.failure.code for outcome in outcomes if outcome.failure] == [code] * len(outcomes)
    return records


@pytest.mark.promise("BLT-03")
@pytest.mark.parametrize("given", ARGUMENTS, ids=lambda given: ascii(given)[:70])
async def test_credentials_in_a_url_are_kept_and_told_nowhere(tmp_path, caplog, given):
    caplog.set_level(logging.DEBUG)
    await check(tmp_path, [ToolCall(id="c1", name="web_fetch", arguments=filled(given))])
    assert SECRET not in caplog.text


@pytest.mark.promise("BLT-03")
async def test_the_record_says_what_was_refused(tmp_path):
    url = f"https://me:{SECRET}@pages.example/a"
    (record,) = await check(tmp_path, [ToolCall(id="c1", name="web_fetch", arguments={"url": url, "format": "text"})])
    assert record.arguments == {"url": "https://[credentials]@pages.example/a", "format": "text"}


@pytest.mark.promise("BLT-03")
async def test_credentials_that_a_tool_hands_on_are_not_recorded_either(tmp_path):
    @tool
    async def read(ctx: ToolContext) -> object:
        return await ctx.call("web_fetch", url=f"https://me:{SECRET}@pages.example/")

    records = await check(tmp_path, [ToolCall(id="c1", name="read")], tools=(web_fetch, read))
    assert [record.tool for record in records] == ["read", "web_fetch"]


@pytest.mark.promise("BLT-03")
async def test_credentials_that_a_hook_puts_in_are_not_recorded_either(tmp_path):
    def replace(call):
        return ReplaceArguments({"url": f"https://me:{SECRET}@pages.example/"})

    calls = [ToolCall(id="c1", name="web_fetch", arguments={"url": "https://pages.example/"})]
    await check(tmp_path, calls, before=[replace])


@pytest.mark.promise("BLT-03")
async def test_nobody_is_asked_about_a_call_with_credentials(tmp_path):
    calls = [ToolCall(id="c1", name="web_fetch", arguments={"url": f"https://me:{SECRET}@pages.example/"})]
    await check(tmp_path, calls, policy=Policy(rules=[Rule("ask", "web_fetch")]))


@pytest.mark.parametrize(
    "path",
    [
        "/@me",
        "/a:b@c",
        "/npm/left-pad@1.3.0/index.js",
        "//left-pad@1.3.0",
        "?mail=me@pages.example",
        "#me@pages.example",
        "/https://pages.example/@me",
        "/a%40b",
        "/?mail=me%40pages.example",
        "/?of=https%3A%2F%2Fpages.example%2F%40me",
    ],
)
async def test_an_at_sign_elsewhere_is_no_user_name(web: Web, path: str):
    site = await web.serve(response(b"hello"))
    outcome = await web.fetch(f"http://pages.example:{site.port}{path}")
    assert outcome.value["content"] == "hello"


def test_long_arguments_are_looked_through_in_time_that_grows_with_them_alone():
    began = time.thread_time()
    for text in (
        ":" * 300_000,
        "://" * 100_000,
        "://a:b" * 50_000,
        "a" * 300_000,
        "\\\\" * 150_000,
        "a:" * 150_000,
    ):
        for arguments in (f'{{"url":"{text}","x":"@"}}', f'{{"url":"@/{text}"}}', f'{{"url":"/{text}/@"}}'):
            screen_credentials(arguments.encode())
    assert time.thread_time() - began < 5  # a square of the length would be minutes

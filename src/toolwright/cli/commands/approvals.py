"""`toolwright approvals`: what waits for a person, and decisions about calls; those about questions are in
`questions.py`."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NoReturn

import typer

from toolwright.app import App
from toolwright.calls.suspend.approvals import Approval
from toolwright.calls.suspend.questions import Question
from toolwright.cli.display.output import Screen, data_of, echo, print_json
from toolwright.cli.display.request_tables import decision_table, request_table
from toolwright.cli.display.styles import plain
from toolwright.cli.display.time_format import moment
from toolwright.cli.exits import BAD_INPUT, OUTRUN, SUCCEEDED, BadInput, complain, reported
from toolwright.cli.input import options
from toolwright.cli.input.apps import app_of_store, tools_of_store
from toolwright.cli.input.arguments import read_object
from toolwright.cli.input.pick_request import Chosen, Request, choose, open_requests, told_request
from toolwright.cli.input.stores import opened, require_store
from toolwright.cli.run_turns import this_terminal, user_name
from toolwright.errors import KeyRefused
from toolwright.session.inbox import require_fitting
from toolwright.session.open_waits import Resolved
from toolwright.stores.contracts.waits import APPROVALS, WaitKind
from toolwright.tools.registry import Catalogue

Verb = Literal["approve", "deny"]
Ids = Annotated[
    list[str],
    typer.Argument(metavar="ID…", help="The id of a call, a number of the list, or a key."),
]
Always = Annotated[
    bool, typer.Option("--always", help="Decide so for all later calls of the tool in its session, too.")
]
Matching = Annotated[
    str | None,
    typer.Option(
        metavar="JSON",
        help='Like --always, for later calls whose arguments match: \'{"path": "/tmp/*"}\'.',
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask whether a number means the right call.")]


def approvals(
    context: typer.Context,
    db: options.Db = None,
    session: options.OfSession = None,
    decided: Annotated[
        bool, typer.Option("--decided", help="List the decisions instead, the newest first: by whom, and when.")
    ] = False,
    limit: Annotated[int, typer.Option(metavar="N", min=1, help="With --decided, list so many at most.")] = 50,
    before: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", min=0, help="With --decided, list older ones than that of this number."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """List what waits for a person, the oldest first: calls, which `approvals approve` and `approvals deny` decide, and
    questions of tools, which `approvals answer` and `approvals decline` decide."""
    if context.invoked_subcommand is not None:
        context.obj = options.Before(db, session, as_json)
        return
    with reported():
        if decided:
            _list_decided(require_store(db), session, limit, before, as_json)
            return
        found = asyncio.run(_read(require_store(db), session))
        if as_json:
            print_json([request_data(request) for request in found])
        elif found:
            Screen().print(request_table(found, time.time()))
        else:
            Screen(stderr=True).print("Nothing waits for a person.")


def approve(
    context: typer.Context,
    ids: Ids,
    db: options.Db = None,
    session: options.OfSession = None,
    app: options.AppName = None,
    arguments: Annotated[
        str | None, typer.Option(metavar="JSON", help="Run it with these arguments instead; for one call only.")
    ] = None,
    always: Always = False,
    matching: Matching = None,
    yes: Yes = False,
    as_json: options.Json = False,
) -> None:
    """Approve calls that wait for approval. The first decision counts.

    A call continues where it waits; if no process runs it any more, when its batch is run again or by `recover`.
    """
    with reported():
        given = None if arguments is None else read_object(arguments, "given")
        if given is not None and len(ids) > 1:
            raise BadInput("--arguments belong to one call; approve the others separately")
        said = {"arguments": given, "always": _pattern(always, matching)}
        tools = None if given is None else tools_of_store(app)
        _decide("approve", ids, context.obj.then(db, session, as_json), said, yes, app_of_store(app), tools)


def deny(
    context: typer.Context,
    ids: Ids,
    db: options.Db = None,
    session: options.OfSession = None,
    app: options.AppName = None,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; the model reads it.")] = None,
    always: Always = False,
    matching: Matching = None,
    yes: Yes = False,
    as_json: options.Json = False,
) -> None:
    """Deny calls that wait for approval. The first decision counts."""
    with reported():
        said = {"reason": reason, "always": _pattern(always, matching)}
        _decide("deny", ids, context.obj.then(db, session, as_json), said, yes, app_of_store(app))


def _pattern(always: bool, matching: str | None) -> dict[str, Any] | None:
    if matching is not None:
        return read_object(matching, "of --matching")
    return {} if always else None


def _list_decided(store: str, session: str | None, limit: int, before: int | None, as_json: bool) -> None:
    found = asyncio.run(_read_decided(store, session, limit, before))
    if as_json:
        print_json([request_data(request) for request in found])
    elif found:
        Screen().print(decision_table(found))
        if len(found) == limit:
            Screen(stderr=True).print(f"There may be older ones: --before {found[-1].number} lists them.")
    else:
        Screen(stderr=True).print("Nothing was decided.")


def request_data(request: Request) -> dict[str, Any]:
    """A request as plain data; `kind` tells questions from approvals."""
    data: dict[str, Any] = data_of(request)
    return {"kind": "question" if isinstance(request, Question) else "approval", **data}


async def _read_decided(store: str, session: str | None, limit: int, before: int | None) -> list[Request]:
    async with opened(store) as runtime:
        found: list[Request] = [
            *await runtime.decisions(session, limit=limit, before=before),
            *await runtime.questions(session, decided=True, limit=limit, before=before),
        ]
    return sorted(found, key=lambda request: request.number or 0, reverse=True)[:limit]


async def _read(store: str, session: str | None) -> list[Request]:
    async with opened(store) as runtime:
        return await open_requests(runtime, session)


def _decide(
    verb: Verb,
    words: Sequence[str],
    given: options.Before,
    said: dict[str, Any],
    yes: bool,
    app: App,
    tools: Catalogue | None = None,
) -> None:
    store = require_store(given.db)
    chosen = asyncio.run(choose_all(store, words, given.session))
    for one in chosen:
        if isinstance(one.request, Question):
            raise BadInput(
                f"{one.call_id!r} asks a question and needs no approval: toolwright approvals answer, or decline"
            )
        tool = None if tools is None or one.request is None else tools.get(one.request.tool)
        if tool is not None:
            require_fitting(tool, said["arguments"])
    if said["always"] is not None and any(_is_of_crash(one) for one in chosen):
        raise BadInput("A call that a crash cut off is decided each time; leave out --always and --matching")
    if not yes:
        confirm_numbers(verb, [one for one in chosen if one.by_number])
    finish(chosen, asyncio.run(_settle(verb, store, app, chosen, said)), as_json=given.as_json)


def _is_of_crash(one: Chosen) -> bool:
    return isinstance(one.request, Approval) and one.request.cause == "crash"


def finish(
    chosen: Sequence[Chosen],
    ends: Sequence[Resolved | KeyRefused],
    *,
    as_json: bool,
    taken: str = "approved",
    refused: str = "denied",
) -> NoReturn:
    """Tell how requests were decided, in these words, and end the command."""
    if as_json:
        print_json([_data(one, end) for one, end in zip(chosen, ends, strict=True)])
    for one, end in zip(chosen, ends, strict=True):
        if isinstance(end, KeyRefused):
            complain(str(end))
        elif not as_json:
            echo(plain(_told(one, end, taken, refused)))
    if any(isinstance(end, KeyRefused) for end in ends):
        raise typer.Exit(BAD_INPUT)
    raise typer.Exit(SUCCEEDED if all(isinstance(end, Resolved) and end.first for end in ends) else OUTRUN)


def _data(one: Chosen, end: Resolved | KeyRefused) -> dict[str, Any]:
    known = {"key": one.key, "call_id": one.call_id}
    return {**known, **({"refused": str(end)} if isinstance(end, KeyRefused) else data_of(end))}


async def choose_all(
    store: str, words: Sequence[str], session: str | None, kinds: Sequence[WaitKind] = APPROVALS
) -> list[Chosen]:
    """The requests that words mean, each once."""
    requests = await _read(store, session)
    chosen = [await choose(store, requests, word, session, kinds) for word in words]
    return list({one.key: one for one in chosen}.values())


def confirm_numbers(verb: str, counted: Sequence[Chosen]) -> None:
    """Ask whether numbers mean the right calls: the list that was read may have changed."""
    for one in counted:
        assert one.request is not None
        what = told_request(one.request)
        if not sys.stdin.isatty():
            raise BadInput(
                f"A number is a place in a list that changes, and here it is call {one.call_id!r}, {what:.100}; "
                "use the call's id or its key, or add --yes"
            )
        if not typer.confirm(plain(f"{verb.capitalize()} {one.call_id}: {what}?"), err=True):
            raise BadInput("Nothing was decided")


async def _settle(
    verb: Verb, store: str, app: App, chosen: Sequence[Chosen], said: dict[str, Any]
) -> list[Resolved | KeyRefused]:
    ends: list[Resolved | KeyRefused] = []
    async with opened(store, app) as runtime:
        decide: Any = runtime.approve if verb == "approve" else runtime.deny
        for one in chosen:
            try:
                ends.append(await decide(one.key, **said, by=user_name(), via=this_terminal()))
            except KeyRefused as refused:  # the others have a right to be decided, and to be told of
                ends.append(refused)
    return ends


def _told(one: Chosen, stands: Resolved, taken: str, refused: str) -> str:
    words = {"ok": taken, "error": refused, "expired": "given up: nobody decided in time"}
    how = words.get(stands.status)
    what = f"{how or stands.status}{f': {stands.reason}' if stands.reason else ''}"
    name = one.call_id or "the request"
    name = f"{name} ({one.request.tool})" if one.request else name
    if stands.first:
        return f"{name} is {what}"
    return f"Somebody else was first: {name} was {what} ({moment(stands.at)})"

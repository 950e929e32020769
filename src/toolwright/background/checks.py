"""The checks of a tool that is to run in the background, by a run, a schedule or a trigger. Owns every refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast, get_args

from toolwright import jsonx
from toolwright.calls.authorise.authority import Origin
from toolwright.calls.policy import Policy
from toolwright.calls.prepare.prepare import MOST_CONTAINERS, MOST_ITEMS
from toolwright.errors import InvalidArguments, RunError, ServiceError
from toolwright.large_json import has_few_parts, is_within
from toolwright.session.core import SessionCore
from toolwright.session.services.quotas import to_json
from toolwright.stores.contracts.background_run import Disposition, Options
from toolwright.stores.contracts.run_store import Limits
from toolwright.stores.contracts.sessions import Quota
from toolwright.tools.outcome import encodable
from toolwright.tools.registry import find
from toolwright.tools.tool import Tool
from toolwright.tools.validation_messages import summarise

ITSELF = "spawn_background"
_BY_PROGRAM = jsonx.encode({"by": "host"})
LONGEST = 366 * 24 * 3600.0
"""Seconds that a run may take at most."""


def provenance_of(origin: Origin, session: str, trace: str = "") -> bytes:
    """The origin of the runs that are started in a session, as JSON, with the trace that they are part of."""
    call, traced = origin.call, {"trace": trace} if trace else {}
    if call is None:
        return jsonx.encode({**jsonx.decode(_BY_PROGRAM), **traced}) if traced else _BY_PROGRAM
    elsewhere = {} if call.session == session else {"session": call.session}
    return jsonx.encode(
        {"by": "call", **elsewhere, "scope": call.scope, "call_id": call.call_id, "source": origin.source, **traced}
    )


def backgroundable(session: SessionCore, name: object, policy: Policy) -> Tool:
    """The tool that a session has under a name, which may run in the background.

    Raises:
        RunError: there is none, or it may not.
    """
    if not isinstance(name, str) or not name.strip():
        raise RunError("Missing required parameter: tool")
    name = name.strip()
    if name == ITSELF:
        raise RunError(f"{ITSELF} cannot target itself recursively")
    tools = session.all_tools()
    tool = tools.get(name) or find(tools, name)
    if tool is None:
        raise RunError(f"Unknown tool: {name}", "not_found")
    require_background(tool, name, policy)
    if tool.definition.secret is not None:
        raise RunError(
            f"Tool {name!r} takes a secret as {tool.definition.secret!r}, and the input of a run is stored; "
            "let it take the name of a secret of the session"
        )
    if session.has_own_tools:
        session.require_in_every_process(tool)
    return tool


def require_background(tool: Tool | None, name: str, policy: Policy) -> None:
    """Refuse a tool that may not run in the background, also when there is a run of it from before.

    Raises:
        RunError: it may not.
    """
    marked = tool is None or tool.definition.hints.supports_background
    if not marked and policy.background_tools != "all":
        raise RunError(f"Tool does not support background execution: {name}")


def require_arguments(args: object, hides: Callable[[bytes], bool] | None, policy: Policy) -> bytes:
    """The JSON of the arguments of a run. `hides` says whether some JSON holds a secret of the session, if it has any.

    They have the same limits as those of a call: a run with more would fail each time, and be stored in vain.

    Raises:
        RunError: they are not an object, are too large, or hold a secret in clear.
    """
    if args is None or not isinstance(args, Mapping):
        if args is not None:
            raise RunError("Missing required parameter: args (object expected)")
        args = {}
    args, limit = dict(args), policy.max_argument_bytes
    try:
        data = to_json("input of a run", args) if is_within(args, limit, MOST_ITEMS) else None
    except (ServiceError, jsonx.TooDeep) as error:
        raise RunError(f"The arguments cannot be used: {error}") from error
    if data is None or len(data) > limit or not has_few_parts(data, MOST_CONTAINERS, MOST_ITEMS):
        raise RunError(
            f"The arguments have more than {limit} bytes, or more than {MOST_CONTAINERS} lists and objects, or more "
            f"than {MOST_ITEMS} items; send less, or refer to a file",
            "too_large",
        )
    if hides is not None and hides(data):
        raise RunError("The arguments hold the value of a secret, and would be stored; give the tool its name")
    return data


def require_fitting(tool: Tool, arguments: bytes) -> bytes:
    """The same arguments, which fit the tool: a run that can never succeed is refused now, and not later in the
    background.

    Raises:
        RunError: they do not.
    """
    try:
        tool.validate(arguments)
    except InvalidArguments as error:
        raise not_fitting(tool, error) from error
    return arguments


def not_fitting(tool: Tool, error: InvalidArguments) -> RunError:
    """The refusal of arguments that do not fit a tool."""
    return RunError(f"The arguments do not fit tool {tool.name!r}:\n{summarise(error.problems)}")


def title_of(tool: Tool, title: object, hides: Callable[[bytes], bool] | None) -> str:
    """The title of a run.

    Raises:
        RunError: it is not text, or holds a secret in clear.
    """
    if title is not None and (not isinstance(title, str) or encodable(title) != title):
        raise RunError(f"The title {title!r:.200} of a run is not usable; use text")
    if title and hides is not None and hides(jsonx.encode(title)):
        raise RunError("The title holds the value of a secret, and would be shown; use another")
    text = " ".join((title or "").split()) or tool.definition.display_name or f"Background {tool.definition.name}"
    return text[:200]


def require_no_secret(what: str, name: str, hides: Callable[[bytes], bool] | None) -> str:
    """The name, which is stored and shown.

    Raises:
        RunError: it holds a secret in clear.
    """
    if hides is not None and hides(jsonx.encode(name)):
        raise RunError(f"The {what} of a run holds the value of a secret, and would be shown; use another")
    return name


def options_of(timeout: float | None, signal_on_completion: object, disposition: object) -> Options:
    """How a run is to be run.

    Raises:
        RunError: something of it is not usable.
    """
    wrong = isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 < timeout <= LONGEST
    if timeout is not None and wrong:
        raise RunError(f"The timeout {timeout!r:.100} of a run is not usable; use seconds, up to {LONGEST:g}")
    if not isinstance(signal_on_completion, bool):
        raise RunError(f"signal_on_completion is {signal_on_completion!r:.100}; use True or False")
    if not isinstance(disposition, str) or disposition not in get_args(Disposition):
        known = ", ".join(get_args(Disposition))
        raise RunError(f"The disposition {disposition!r:.100} of a run is not known; use one of {known}")
    return Options(
        timeout=None if timeout is None else float(timeout),
        signal_on_completion=signal_on_completion,
        disposition=cast("Disposition", str.__str__(disposition)),
    )


def limits_of(policy: Policy, resources: Quota, *, queue: bool = False) -> Limits:
    """How many runs a policy allows; `resources` is the quota for showing them.

    With `queue`, runs beyond the limits wait, whatever the policy's setting: there is no caller to refuse.
    """
    queue = queue or policy.on_background_limit == "queue"
    return Limits(
        policy.background_per_session, policy.background_per_worker, queue, resources, policy.tracked_per_session
    )

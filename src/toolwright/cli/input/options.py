"""The options that commands share. Owns their names, help and effect on the policy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from msgspec import structs

from toolwright.app import App
from toolwright.calls.policy import Policy, Rule
from toolwright.cli.display.service_log import LogForm
from toolwright.cli.exits import BadInput, tell_errors_in_json
from toolwright.errors import PolicyError
from toolwright.tools.turn_protocols import Budget

_POLICY = "Policy"
_STORE = "Store"

AppName = Annotated[
    str | None,
    typer.Option(
        "--app",
        "-a",
        metavar="SOURCE",
        help="The app to open: module:name or file.py:name. Without it: the app of the nearest pyproject.toml, under "
        "\\[tool.toolwright].",
    ),
]
Tools = Annotated[
    list[str] | None,
    typer.Option(
        "--tools",
        "-t",
        metavar="SOURCE",
        help="Tools in place of an app: module, module:attribute, tools.py, tools.py:attribute, or a built-in "
        "capability such as files or web. Repeatable. "
        "Without it: the app, or else the tools, of the nearest pyproject.toml, under \\[tool.toolwright].",
    ),
]
Arguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ARGS",
        help="key=value pairs, the values JSON or else text; or a JSON object; or - for one on stdin.",
    ),
]
Db = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="FILE",
        help="The store. Without it: the db of the nearest pyproject.toml, under \\[tool.toolwright].",
    ),
]
Filled = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="FILE",
        help="The store, made if need be. Without it: the db of the nearest pyproject.toml.",
    ),
]
KeptIn = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="FILE",
        help="Store the records here, in a file that is made if needed: calls with ids can be run again, and calls "
        "that need approval wait for it. Without it: the db of the project, if it has one; :memory: stores nothing.",
        rich_help_panel=_STORE,
    ),
]
Session = Annotated[
    str,
    typer.Option(
        "--session",
        metavar="ID",
        help="The session of the calls: a call is known by its session and its id.",
        rich_help_panel=_STORE,
    ),
]
Scope = Annotated[
    str,
    typer.Option(
        "--scope",
        metavar="TEXT",
        help="Separates ids that a provider uses again in every model turn.",
        rich_help_panel=_STORE,
    ),
]
Owner = Annotated[str, typer.Option("--session", metavar="ID", help="The session that it belongs to.")]
OfSession = Annotated[str | None, typer.Option("--session", metavar="ID", help="Only those of this session.")]
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON on stdout and nothing else there.", callback=tell_errors_in_json)
]
JsonLines = Annotated[
    bool, typer.Option("--json", help="Print the events as JSON lines.", callback=tell_errors_in_json)
]
Active = Annotated[bool, typer.Option("--active", help="Only the unfinished ones.")]
AtMost = Annotated[int, typer.Option(metavar="N", min=1, help="At most so many.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show the log on stderr, with tracebacks.")]
Log = Annotated[
    LogForm,
    typer.Option(
        "--log", help="Write what it does to stderr as text for people, or as JSON for programs: one object a line."
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Time for a tool that names none itself.", rich_help_panel=_POLICY),
]
ReadOnly = Annotated[
    bool, typer.Option("--read-only", help="Refuse tools that may change something.", rich_help_panel=_POLICY)
]
Approve = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TOOL",
        help="Let this tool run though it needs approval; a name or a pattern such as 'git_*'. Repeatable.",
        rich_help_panel=_POLICY,
    ),
]
Driver = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Who brings runs, turns and schedules to workers: 'store', or temporal://host:7233/namespace?queue=name.",
    ),
]
SpillDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        file_okay=False,
        help="The directory for outputs that are cut for the model, complete.",
        rich_help_panel=_POLICY,
    ),
]
MaxConcurrency = Annotated[
    int | None, typer.Option(metavar="N", help="Run at most so many calls at once.", rich_help_panel=_POLICY)
]
FailFast = Annotated[
    bool, typer.Option("--fail-fast", help="Cancel the rest when a call fails.", rich_help_panel=_POLICY)
]
Events = Annotated[
    Path | None,
    typer.Option(metavar="FILE", dir_okay=False, help="Append every event to this file, as lines of JSON."),
]


Model = Annotated[
    str | None,
    typer.Option(
        metavar="PROVIDER:NAME",
        help="The model that answers, as in openai:gpt-5 or anthropic:claude-sonnet-4-5. Without it: the app's.",
    ),
]
Conversation = Annotated[
    str | None,
    typer.Option("--session", metavar="ID", help="The conversation to continue. Without it: a new one."),
]
_BUDGET = "Budget of a turn"
BudgetModelCalls = Annotated[
    int | None,
    typer.Option("--budget-model-calls", metavar="N", min=0, help="Calls of the model.", rich_help_panel=_BUDGET),
]
BudgetToolCalls = Annotated[
    int | None,
    typer.Option("--budget-tool-calls", metavar="N", min=0, help="Calls of tools.", rich_help_panel=_BUDGET),
]
BudgetTokens = Annotated[
    int | None,
    typer.Option("--budget-tokens", metavar="N", min=0, help="Tokens, input and output.", rich_help_panel=_BUDGET),
]
BudgetCost = Annotated[
    float | None,
    typer.Option("--budget-cost", metavar="X", min=0, help="Cost, for a model with a price.", rich_help_panel=_BUDGET),
]
BudgetSeconds = Annotated[
    float | None,
    typer.Option("--budget-seconds", metavar="SECONDS", min=0, help="Time of work.", rich_help_panel=_BUDGET),
]


def read_budget(app: App, **limits: float | None) -> Budget | None:
    """The budget of the app with the limits that the options give; None where they give none."""
    given: dict[str, Any] = {name: limit for name, limit in limits.items() if limit is not None}
    return structs.replace(app.budget or Budget(), **given) if given else None


class Before(NamedTuple):
    """The options before the verb, as in `approvals --session s1 approve c1`: they apply unless the verb has its
    own."""

    db: str | None
    session: str | None
    as_json: bool

    def then(self, db: str | None, session: str | None, as_json: bool) -> Before:
        """The options that apply to the verb."""
        return Before(
            self.db if db is None else db,
            self.session if session is None else session,
            as_json or self.as_json,
        )


def with_policy(
    app: App,
    *,
    timeout: float | None = None,
    read_only: bool = False,
    approve: list[str] | None = None,
    spill_dir: Path | None = None,
    max_concurrency: int | None = None,
    fail_fast: bool = False,
    capacity: int | None = None,
    queue: bool = False,
) -> App:
    """The app under its policy as the options change it; a setting that they leave out stays as it is.

    Raises:
        BadInput: a value is not usable.
    """
    policy = app.policy or Policy()
    said: dict[str, Any] = {}
    if capacity is not None:
        said["background_per_worker"] = capacity
    if queue:
        said["on_background_limit"] = "queue"
    if read_only:
        said["read_only"] = True
    if fail_fast:
        said["continue_on_failure"] = False
    if spill_dir is not None:
        said["spill_dir"] = spill_dir
    if timeout is not None:
        said["timeout"] = timeout
    if max_concurrency is not None:
        said["max_concurrency"] = max_concurrency
        # One batch in one session: the wider limits must not be the narrower ones.
        for wider in ("session_concurrency", "runtime_concurrency"):
            said[wider] = max(max_concurrency, getattr(policy, wider))
    try:
        if approve:
            said["rules"] = _approved(policy.rules, Rule("allow", tools=tuple(approve), name="--approve"))
        return app.but(policy=policy.but(**said))
    except PolicyError as error:
        # The error names the setting; the person who reads it typed the option.
        message = re.sub(r"Policy\.(\w+)", lambda found: "--" + found[1].replace("_", "-"), str(error))
        raise BadInput(message) from None


def _approved(rules: Sequence[Rule], approval: Rule) -> list[Rule]:
    """The rules with one that lets tools run; a rule that asks a person about these tools no longer does."""

    def not_approved(rule: Rule) -> Rule:
        when = rule.when
        return replace(
            rule, when=lambda request: not approval.concerns(request.tool) and (when is None or when(request))
        )

    return [approval, *(not_approved(rule) if rule.effect == "ask" else rule for rule in rules)]

"""The decisions of the runtime's owner. Owns `Policy` and `Rule`, and which of two rules comes first; does not own
judging a call."""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePath
from typing import Any, Literal, TypedDict, Unpack, get_args

from msgspec import Struct

from toolwright.argument_checks import is_number
from toolwright.calls.authorise.argument_patterns import session_path
from toolwright.calls.authorise.shell.patterns import Place, ScriptPatterns, WrittenPath
from toolwright.calls.authorise.shell.read_script import no_script, read_script
from toolwright.calls.authorise.shell.script import Script
from toolwright.errors import PolicyError
from toolwright.plain_data import plain_data, plain_value
from toolwright.tools.arguments import hide_secret
from toolwright.tools.call import CallSource
from toolwright.tools.claims import MOST_PATHS, Resource
from toolwright.tools.definition import CAPABILITIES
from toolwright.tools.tool import Tool, is_async

Effect = Literal["allow", "ask", "deny"]
OnLoop = Literal["warn", "refuse", "ignore"]
OnAsk = Literal["wait", "deny"]
OnConnection = Literal["return", "wait"]
OnLimit = Literal["refuse", "queue"]
Approve = Literal["required", "suggested"]

SOURCES: tuple[str, ...] = get_args(CallSource)
SEVERITY: dict[str, int] = {"allow": 0, "ask": 1, "deny": 2}
MOST_COUNTED = 1_000_000_000
"""The highest limit of background work. A higher one, such as `sys.maxsize`, means this: a store adds limits up."""


def precedence(level: int, effect: Effect) -> tuple[int, int]:
    """The place of a rule among those that match, the smallest first: by level, then deny, ask, allow."""
    return -level, -SEVERITY[effect]


class Request(Struct, frozen=True):
    """The facts that a rule may look at: the tool, the arguments, and the origin of the call."""

    session: str
    call_id: str
    tool: Tool
    arguments: Mapping[str, Any]
    source: CallSource
    parent: str | None

    def to_json(self) -> dict[str, Any]:
        """The request as plain data; a placeholder stands for the argument that its tool declares secret."""
        definition = self.tool.definition
        shown = hide_secret(self.arguments, definition.secret)
        told = plain_data(self, without=("tool", "arguments"))
        return told | {"tool": definition.to_json(), "arguments": plain_value(shown)}

    def path(self, parameter: str) -> str:
        """The resolved path in an argument: `etc/a`, `//etc/a` and `/workspace/etc/a` are all `/etc/a`.

        An argument that the call leaves out has the default of its parameter.

        Raises:
            PolicyError: the argument is not a path. The call does not run then.
        """
        given = self._given(parameter)
        if not isinstance(given, (str, PurePath)):
            raise PolicyError(
                f"Argument {parameter!r} is of type {type(given).__name__!r}, which is not a path; use a parameter "
                "that always holds one, or paths() for a list"
            )
        return session_path(str(given))

    def paths(self, parameter: str) -> tuple[str, ...]:
        """The resolved paths in an argument that is a list; one path is a list of one, and None is an empty list.

        Raises:
            PolicyError: the argument holds something that is not a path. The call does not run then.
        """
        given = self._given(parameter)
        several = () if given is None else given if isinstance(given, (list, tuple, set, frozenset)) else (given,)
        if not all(isinstance(item, (str, PurePath)) for item in several):
            raise PolicyError(
                f"Argument {parameter!r} holds values that are not paths; use a parameter that holds paths only"
            )
        return tuple(session_path(str(item)) for item in several)

    def _given(self, parameter: str) -> object:
        if parameter in self.arguments:
            return self.arguments[parameter]
        properties = self.tool.definition.input_schema.get("properties")
        schema = properties.get(parameter) if isinstance(properties, Mapping) else None
        return schema.get("default") if isinstance(schema, Mapping) else None


_MATCHES_A_NAME = re.compile(r"(?:[A-Za-z0-9_.:/*?-]|\[!?\]?[^\]]*\])+")
"""Shell-style patterns that the name of some tool may match."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Allow, ask about, or deny the calls that match all conditions of the rule.

    `tools` is a name or a shell-style pattern, or several. `when` sees the whole `Request`. Rules of a higher `level`
    are looked at first; within a level deny beats ask and ask beats allow, and the earlier of two equals decides.

    `commands` and `writes` look into the scripts of tools with kind "shell": patterns such as "rm" or "git push*" on
    each command that the script would run, and such as "/etc/*" on the paths that it would write. To deny or ask, a
    rule needs one match, or something that cannot be known: then `unknown` decides, "deny" or "ask", by default the
    rule's own effect. To allow, everything in the script must match.

    For a tool of another kind, `writes` judges the paths in the parameters that the tool declares with its own
    `writes=`, each resolved as the session's files resolve it.
    """

    effect: Effect
    """"allow", "ask" or "deny"."""
    tools: str | Sequence[str] = "*"
    """Names or ids of tools, or shell-style patterns of them."""
    name: str | None = None
    """The name of the rule in outcomes and records; by default its effect and its tools."""
    reason: str | None = None
    """A sentence that the model reads when the rule refuses a call, and a person when it asks."""
    level: int = 0
    """Rules of a higher level are looked at first."""
    source: CallSource | None = None
    """Only calls from this source, such as "model"; None for all."""
    mutating: bool | None = None
    """True for tools that are not declared `readonly`, False for those that are, None for both."""
    capabilities: Set[str] = frozenset()
    """Only tools that have all of these capabilities."""
    when: Callable[[Request], bool] | None = None
    """Only calls for which this function returns True."""
    commands: Sequence[str] = ()
    """Patterns of the commands that a script runs."""
    writes: Sequence[str] = ()
    """Patterns of the paths that a script or tool writes."""
    unknown: Literal["ask", "deny"] | None = None
    """The effect for a script that cannot be judged; None for the effect of the rule."""
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)
    _scripts: ScriptPatterns | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        effect: object = self.effect
        if not isinstance(effect, str) or effect not in SEVERITY:
            raise PolicyError(f"Rule effect {effect!r:.200} is not known; use allow, ask or deny")
        tools = (self.tools,) if isinstance(self.tools, str) else _tuple_of(self.tools)
        if not tools or not all(isinstance(item, str) and item for item in tools):
            raise PolicyError(f"Rule tools {self.tools!r} name no tool; use a name or a pattern such as 'read_*'")
        # A rule that could never match would deny nothing, silently.
        for item in tools:
            if not _MATCHES_A_NAME.fullmatch(item):
                raise PolicyError(
                    f"Rule tools {item!r:.200} matches no tool: names have letters, digits, and _ . : / -, "
                    "and a pattern may also have * ? and [...]"
                )
        capabilities: Any = self.capabilities
        if isinstance(capabilities, str) or not CAPABILITIES.issuperset(_tuple_of(capabilities)):
            raise PolicyError(
                f"Rule capabilities {capabilities!r} are not a set of known ones; use any of "
                f"{', '.join(sorted(CAPABILITIES))}"
            )
        if self.source is not None and self.source not in SOURCES:
            raise PolicyError(f"Rule source {self.source!r} is not known; use one of {', '.join(SOURCES)}")
        if self.mutating is not None and not isinstance(self.mutating, bool):
            raise PolicyError(f"Rule mutating={self.mutating!r}; use True, False or None for both")
        if isinstance(self.level, bool) or not isinstance(self.level, int):
            raise PolicyError(f"Rule level {self.level!r} is not usable; use a whole number")
        for name in ("name", "reason"):
            if (text := getattr(self, name)) is not None and (not isinstance(text, str) or not text):
                raise PolicyError(f"Rule {name} {text!r} is not usable; use a text, or leave it out")
        when: Any = self.when
        if when is not None and (not callable(when) or is_async(when)):
            raise PolicyError(f"Rule when={when!r} cannot be used; use a plain function of a Request")
        self._look_into_scripts()
        object.__setattr__(self, "tools", tools)
        object.__setattr__(self, "capabilities", frozenset(capabilities))
        object.__setattr__(self, "_pattern", re.compile("|".join(fnmatch.translate(item) for item in tools)))
        if self.name is None:
            object.__setattr__(self, "name", f"{self.effect} {', '.join(tools)}")

    def _look_into_scripts(self) -> None:
        for name in ("commands", "writes"):
            given: Any = getattr(self, name)
            patterns = (given,) if isinstance(given, str) else _tuple_of(given)
            if not all(isinstance(item, str) for item in patterns):
                raise PolicyError(f"Rule {name} {given!r} are not patterns; use texts such as 'rm' or '/etc/*'")
            object.__setattr__(self, name, patterns)
        if not self.commands and not self.writes:
            if self.unknown is not None:
                raise PolicyError(f"Rule unknown={self.unknown!r} is for rules with commands or writes; add some")
            return
        if self.unknown is not None and (self.unknown not in ("ask", "deny") or self.effect == "allow"):
            raise PolicyError(
                f"Rule unknown={self.unknown!r} cannot be used; use ask or deny, in a rule that does either"
            )
        object.__setattr__(self, "_scripts", ScriptPatterns(self.commands, self.writes))

    def concerns(self, tool: Tool) -> bool:
        """True when the rule's fixed part matches the tool; the rest depends on the call."""
        definition = tool.definition
        # A rule that names a tool means it, even where there is nothing to look into.
        by_name = self.effect != "allow" and bool({definition.name, definition.id} & set(self.tools))
        if self._scripts is not None and definition.kind != "shell" and not (by_name or self._judges_paths_of(tool)):
            return False
        if not (self._pattern.match(definition.name) or self._pattern.match(definition.id)):
            return False
        if self.mutating is not None and self.mutating is not definition.hints.mutating:
            return False
        return self.capabilities <= definition.capabilities

    @property
    def depends_on_call(self) -> bool:
        """True when the tool alone does not decide whether the rule matches."""
        return self.when is not None or self.source is not None or self._scripts is not None

    def _judges_paths_of(self, tool: Tool) -> bool:
        """True when the rule looks at the paths that a tool without a script declares as written."""
        return bool(self.writes) and tool.definition.kind != "shell" and bool(_written_by(tool))

    def tests(self, tool: Tool) -> list[tuple[Effect, Callable[[Request], Any]]]:
        """The tests of the rule for a call of a tool, and the effect if each passes."""
        scripts = self._scripts
        if scripts is None:
            return [(self.effect, self.test)]

        def asking(question: Callable[[Script, Place], Any]) -> Callable[[Request], Any]:
            return lambda request: self.matches(request) and question(_script_of(request), _place_of(request.tool))

        if self._judges_paths_of(tool):

            def asking_paths(question: Callable[[Sequence[WrittenPath]], Any]) -> Callable[[Request], Any]:
                return lambda request: self.matches(request) and question(_written_paths(request))

            if self.effect == "allow":
                return [("allow", asking_paths(scripts.allows_paths))]
            return [
                (self.effect, asking_paths(scripts.surely_paths)),
                (self.unknown or self.effect, asking_paths(scripts.perhaps_paths)),
            ]
        if self.effect == "allow":
            return [("allow", asking(scripts.always))]
        return [(self.effect, asking(scripts.surely)), (self.unknown or self.effect, asking(scripts.perhaps))]

    def matches(self, request: Request) -> bool:
        """True when the rule matches this call, apart from its script; `concerns` must be true."""
        if self.source is not None and request.source != self.source:
            return False
        return self.when is None or bool(self.when(request))

    @property
    def test(self) -> Callable[[Request], bool]:
        """The same as `matches`, as a function without checks that always pass."""
        return self.when if self.when is not None and self.source is None else self.matches

    def to_json(self) -> dict[str, Any]:
        """The rule as plain data; the function `when` is shown by its name."""
        return plain_data(self)


class PolicySettings(TypedDict, total=False):
    """The settings of a `Policy`, which explains each of them; any of them can be changed for one batch."""

    max_concurrency: int
    max_crashes: int
    session_concurrency: int
    runtime_concurrency: int
    max_nesting: int
    timeout: float
    long_timeout: float
    grace: float
    grep_timeout: float
    queue_timeout: float | None
    continue_on_failure: bool
    read_only: bool
    rules: Sequence[Rule]
    on_loop: OnLoop
    approve: Approve
    on_ask: OnAsk
    on_connection: OnConnection
    approval_timeout: float | None
    max_lines: int
    max_bytes: int
    spill_dir: Path | str | None
    max_argument_bytes: int
    max_output_bytes: int
    record_bytes: int
    background_per_session: int
    background_per_worker: int
    tracked_per_session: int
    schedules_per_session: int
    background_tools: Literal["marked", "all"]
    on_background_limit: OnLimit
    defer_tools_from: int | None


@dataclass(frozen=True, slots=True, repr=False)
class Policy:
    """The owner's decisions for a runtime, a session or a batch. Times in seconds, sizes in bytes.

    Every number is checked here, so that a wrong policy fails when it is made and not when a tool runs.
    """

    max_concurrency: int = 8
    """How many calls of one batch run at once."""
    max_crashes: int = 3
    """After how many deaths of its process, each while it ran, a call or a background run is given up for good.

    Deaths count from its last finished step. A call that waits does not run, and a program that is closed does not die.
    """
    session_concurrency: int = 16
    """How many calls of one session run at once, over all its batches."""
    runtime_concurrency: int = 64
    """How many calls of the runtime run at once."""
    max_nesting: int = 500
    """How deep calls may be nested that tools make, each inside of the one before."""
    timeout: float = 30.0
    """Seconds for each attempt of a call whose tool has no timeout."""
    long_timeout: float = 3600.0
    """The timeout of `long_running` tools without one of their own; for other tools it is `timeout`."""
    grace: float = 0.05
    """Seconds that a tool has to stop after its time is up or its call is cancelled."""
    grep_timeout: float = 5.0
    """Seconds for one search through the files of a session."""
    queue_timeout: float | None = None
    """Seconds that a call may wait for admission; then it fails, and its tool has not run. None for no limit."""
    continue_on_failure: bool = True
    """Whether a batch continues when one of its calls fails. If not, it is cancelled and raises `BatchFailed`."""
    read_only: bool = False
    """Refuse every tool that is not declared `readonly`."""
    rules: Sequence[Rule] = ()
    """The rules that allow, ask about or deny calls."""
    on_loop: OnLoop = "warn"
    """The handling of calls that are repeated three times: "warn" with an event, "refuse", or "ignore"."""
    approve: Approve = "required"
    """Which tools need an approval where no rule matches: those that require it, or also those that suggest it."""
    on_ask: OnAsk = "wait"
    """The handling of a call that needs an approval: it waits for a person, or is refused ("deny"). A question of a
    tool is declined then."""
    on_connection: OnConnection = "return"
    """The handling of a call whose tool needs a connection: an outcome that says so, or it waits for the connection.

    It waits as long as for a person, `approval_timeout`, and then has that outcome.
    """
    approval_timeout: float | None = 24 * 3600.0
    """Seconds that a call waits for a person; then it is refused, and a question is "expired". None for no limit."""
    max_lines: int = 2_000
    """The most lines of an outcome that a model is shown; the whole is stored in a file."""
    max_bytes: int = 50 * 1024
    """The most bytes of an outcome that a model is shown; the whole is stored in a file."""
    spill_dir: Path | str | None = None
    """A directory for outputs that are too long for a model; None for the files of the session."""
    max_argument_bytes: int = 1024 * 1024
    """The largest arguments of a call, as JSON; a call with more fails."""
    max_output_bytes: int = 8 * 1024 * 1024
    """The largest value that a tool may return, as JSON; a call with more fails."""
    record_bytes: int = 1024 * 1024
    """The largest value that a record in memory holds; a longer one is left out of it."""
    background_per_session: int = 5
    """How many unfinished background runs a session may have."""
    background_per_worker: int = 64
    """How many background runs one worker runs at once."""
    tracked_per_session: int = 100
    """How many runs that happen elsewhere (`session.track`) may be unfinished in a session."""
    schedules_per_session: int = 5
    """How many active schedules a session may have."""
    background_tools: Literal["marked", "all"] = "marked"
    """Which tools may run in the background: those marked with `supports_background=True`, or all."""
    on_background_limit: OnLimit = "refuse"
    """The handling of a background run beyond the limits: it is refused, or waits in the store."""
    defer_tools_from: int | None = None
    """How many tools a session must have for the model to see stubs of them; None for never."""
    plain_bytes: int = field(init=False, repr=False, compare=False)
    """The size up to which a value needs neither a cut nor a refusal."""

    def __post_init__(self) -> None:
        for name in (
            "max_concurrency",
            "max_crashes",
            "max_nesting",
            "session_concurrency",
            "runtime_concurrency",
            "max_lines",
            "background_per_session",
            "background_per_worker",
            "tracked_per_session",
            "schedules_per_session",
        ):
            _require_count(name, getattr(self, name), 1)
        for name in ("background_per_session", "background_per_worker", "tracked_per_session", "schedules_per_session"):
            object.__setattr__(self, name, min(getattr(self, name), MOST_COUNTED))
        for name, least in (
            ("max_bytes", 256),
            ("max_argument_bytes", 2),
            ("max_output_bytes", 256),
            ("record_bytes", 0),
        ):
            _require_count(name, getattr(self, name), least)
        if self.defer_tools_from is not None:
            _require_count("defer_tools_from", self.defer_tools_from, 1)
        object.__setattr__(self, "plain_bytes", min(self.max_bytes, self.max_output_bytes))
        _require_seconds("timeout", self.timeout, above=True)
        _require_seconds("long_timeout", self.long_timeout, above=True)
        _require_seconds("grep_timeout", self.grep_timeout, above=True)
        _require_seconds("grace", self.grace, above=False)
        if self.queue_timeout is not None:
            _require_seconds("queue_timeout", self.queue_timeout, above=True)
        if self.on_loop not in ("warn", "refuse", "ignore"):
            raise PolicyError(f"Policy.on_loop is {self.on_loop!r}; use warn, refuse or ignore")
        if self.on_ask not in ("wait", "deny"):
            raise PolicyError(f"Policy.on_ask is {self.on_ask!r}; use wait, for a person to decide, or deny")
        if self.approve not in ("required", "suggested"):
            raise PolicyError(f"Policy.approve is {self.approve!r}; use required, or suggested to ask more often")
        if self.background_tools not in ("marked", "all"):
            raise PolicyError(f"Policy.background_tools is {self.background_tools!r}; use marked or all")
        if self.on_background_limit not in ("refuse", "queue"):
            raise PolicyError(f"Policy.on_background_limit is {self.on_background_limit!r}; use refuse or queue")
        if self.on_connection not in ("return", "wait"):
            raise PolicyError(f"Policy.on_connection is {self.on_connection!r}; use return or wait")
        if self.approval_timeout is not None:
            _require_seconds("approval_timeout", self.approval_timeout, above=True)
        for name in ("continue_on_failure", "read_only"):
            if not isinstance(getattr(self, name), bool):
                raise PolicyError(f"Policy.{name} is {getattr(self, name)!r}; use True or False")
        rules = self.rules
        if isinstance(rules, Rule) or not isinstance(rules, Iterable):
            raise PolicyError(f"Policy.rules is {rules!r}; use a list of Rule")
        rules = tuple(rules)
        for rule in rules:
            if not isinstance(rule, Rule):
                raise PolicyError(f"Policy.rules holds {rule!r}; use Rule('allow' | 'ask' | 'deny', ...)")
        ordered = sorted(rules, key=lambda rule: precedence(rule.level, rule.effect))
        object.__setattr__(self, "rules", tuple(ordered))
        if self.spill_dir is not None:
            object.__setattr__(self, "spill_dir", _require_directory("spill_dir", self.spill_dir))

    @property
    def authority(self) -> Policy:
        """The part of this policy that decides which calls may run: rules, `read_only`, `approve` and `on_ask`.

        Background work has this part, wherever it runs. The rest are limits, which the running program sets.
        """
        return Policy(rules=self.rules, read_only=self.read_only, approve=self.approve, on_ask=self.on_ask)

    def but(self, **changes: Unpack[PolicySettings]) -> Policy:
        """This policy with some of its settings changed."""
        known = {name for name, setting in Policy.__dataclass_fields__.items() if setting.init}
        for name in changes:
            if name not in known:
                raise PolicyError(f"Policy has no setting {name!r}; its settings are: {', '.join(sorted(known))}")
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """The settings and rules as plain data; functions of rules are shown by their names."""
        return plain_data(self)

    def __repr__(self) -> str:
        """The settings that differ from the default; of the rules only their names."""
        shown = []
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.init and value != setting.default:
                said = [rule.name for rule in self.rules] if setting.name == "rules" else value
                shown.append(f"{setting.name}={str(said) if isinstance(said, Path) else said!r}")
        return f"Policy({', '.join(shown)})"


def _script_of(request: Request) -> Script:
    definition = request.tool.definition
    text = None if definition.script is None else request.arguments.get(definition.script)
    if isinstance(text, str):
        return read_script(text)
    nothing = no_script()
    nothing.doubt("there is no script to look into")
    return nothing


def _written_by(tool: Tool) -> list[Resource]:
    """The parameters of a tool that hold the paths which it writes."""
    return [resource for resource in tool.definition.concurrency.writes if resource.kind != "name"]


def _written_paths(request: Request) -> list[WrittenPath]:
    """The paths that a call writes, as its tool declares them; a path of None cannot be known."""
    found: list[WrittenPath] = []
    for resource in _written_by(request.tool):
        below = resource.kind == "tree"
        given = request._given(resource.source)
        several = given if isinstance(given, (list, tuple, set, frozenset)) else (given,)
        if len(several) > MOST_PATHS or not all(isinstance(item, (str, PurePath)) for item in several):
            found.append(WrittenPath(None, below))
        else:
            found += [WrittenPath(session_path(str(item)), below) for item in several]
    return found


def _place_of(tool: Tool) -> Place:
    return Place(tool.definition.directory, tool.definition.mount)


def _tuple_of(given: object) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, Iterable) else (given,)


def _require_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PolicyError(f"Policy.{name} is {value!r}; use a whole number of at least {least}")


def _require_directory(name: str, value: object) -> Path:
    if not isinstance(value, (str, PurePath)):
        raise PolicyError(f"Policy.{name} is {value!r:.200}; use the path of a directory")
    return Path(value)


def _require_seconds(name: str, value: object, *, above: bool) -> None:
    if not is_number(value) or not 0 <= value < math.inf or (above and value == 0):
        raise PolicyError(
            f"Policy.{name} is {value!r:.200}; use a number of seconds {'above 0' if above else 'of at least 0'}"
        )

"""A tool: a definition and the code to run. Owns `Tool`, `@tool` and how functions become tools."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, Unpack, cast, overload

from msgspec.structs import replace

from toolwright import jsonx
from toolwright.errors import ToolDefinitionError
from toolwright.tools.arguments import Arguments
from toolwright.tools.body import Body, Invoke, MakeBody, Mode, Validate
from toolwright.tools.claims import Claim, compile_claims
from toolwright.tools.context import ToolContext
from toolwright.tools.definition import DefinitionChanges, ToolDefinition
from toolwright.tools.options import ToolOptions, define, read_needs
from toolwright.tools.outcome import Failure
from toolwright.tools.raw_schema import ArgumentProblem, OutputCheck, compile_output_schema, compile_schema
from toolwright.tools.subject import MakeSubject

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    P = ParamSpec("P", default=...)
    R = TypeVar("R", default=Any, covariant=True)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R", covariant=True)

S = TypeVar("S")
First = TypeVar("First", contravariant=True)
Rest = ParamSpec("Rest")
Result = TypeVar("Result", covariant=True)

Prepare = Callable[[dict[str, Any], Any], Any]
"""Takes the arguments and a `PrepareCall`; gives a payload for the run, or the answer in its place."""


class Screened(NamedTuple):
    """Arguments that are refused before anything of the call is recorded: their replacement in the record, and the
    failure."""

    shown: bytes
    failure: Failure

    def to_json(self) -> dict[str, Any]:
        """The failure and the arguments as the record has them, as plain data."""
        return {"shown": jsonx.decode(self.shown), "failure": self.failure.to_json()}


Screen = Callable[[bytes], Screened | None]
"""Takes the JSON of the arguments, valid or not; text that is no JSON object comes as a JSON string."""

ANY_OBJECT: dict[str, Any] = {"type": "object"}
F = TypeVar("F", bound=Callable[..., Any])


class ToolObject(Protocol):
    """An object that is a tool: it defines itself and runs.

    A `prepare(arguments, call)` is optional, and so are an async `run_background(arguments, context)`, which is used in
    the place of `run` in background runs, and a `subject(arguments, view)`, which describes a call to a person.
    """

    definition: ToolDefinition

    async def run(self, arguments: Arguments, context: ToolContext) -> object: ...


class _Method(Protocol[First, Rest, Result]):
    """A function that takes its object, or its class, before all other arguments."""

    def __call__(self, first: First, /, *args: Rest.args, **kwargs: Rest.kwargs) -> Result: ...


class Tool(Generic[P, R]):
    """A tool that can be registered and run. Make one with `@tool`, `Tool.from_schema` or `Tool.from_object`.

    `Tool[P, R]` is the tool of a function with the parameters `P` that returns `R`, and calling it calls that function
    itself: nothing is validated, recorded or retried. A parameter of the type `ToolContext` is given like any other
    then; `toolwright.testing` has a context for it. `R` is a coroutine where the function is async.

    `validate` turns JSON bytes into keyword arguments; `invoke` runs the code with them. Both are built once, here, and
    so are the claims: as much of a call's cost as possible is paid when the tool is defined.
    """

    __slots__ = (
        "__wrapped__",
        "background_body",
        "check_events",
        "check_output",
        "claims",
        "definition",
        "direct",
        "invoke",
        "make_body",
        "mode",
        "needs",
        "needs_context",
        "output_type",
        "prepare",
        "screen",
        "subject",
        "validate",
    )

    definition: ToolDefinition
    claims: tuple[Claim, ...] | Callable[[Mapping[str, Any]], tuple[Claim, ...]]
    check_output: OutputCheck | None
    check_events: dict[str, OutputCheck]

    def __init__(
        self,
        definition: ToolDefinition,
        *,
        validate: Validate,
        invoke: Invoke,
        mode: Mode,
        needs_context: bool,
        needs: frozenset[str] = frozenset(),
        parameters: Iterable[str] | None = None,
        prepare: Prepare | None = None,
        screen: Screen | None = None,
        function: Callable[..., Any] | None = None,
        direct: Callable[..., Any] | None = None,
        output_type: type | None = None,
        output_schema_is_valid: bool = False,
        make_body: MakeBody | None = None,
        subject: MakeSubject | None = None,
    ) -> None:
        known = _properties(definition.input_schema)
        _require_secret(definition, parameters if known is None else known)
        self.definition = definition
        self.validate = validate
        self.invoke = invoke
        # A function that may be called with the arguments by name instead of `invoke`, when it needs no more than
        # these.
        self.direct = direct
        self.mode: Mode = "process" if definition.isolation == "process" else mode
        self.needs_context = needs_context
        self.needs = needs | {"secrets"} if definition.hints.requires_secrets else needs
        _refuse_deps_elsewhere(definition, needs)
        self.prepare = _nothing_to_prepare if prepare is None and definition.hints.requires_secrets else prepare
        self.screen = screen
        # Describes a call to a person; None where the definition is enough.
        self.subject = subject
        self.__wrapped__ = function
        self.background_body: Body | None = None
        self.make_body = make_body
        self.claims = compile_claims(definition.concurrency, owner=definition.name, parameters=parameters)
        self.check_events = {
            event: compile_output_schema(schema, owner=definition.name) for event, schema in definition.events.items()
        }
        # A value of exactly this class fits the output schema, and is not checked.
        self.output_type = None if definition.hints.persist_output else output_type
        self.check_output = _output_check(definition, at_first_use=output_schema_is_valid)

    @property
    def name(self) -> str:
        """The name a model calls it by."""
        return self.definition.name

    def background(self, function: F) -> F:
        """Use another function for the background runs of this tool, with the same parameters: `@report.background`.

        The tool supports the background then. Its name, its schema and all that a policy sees of it stay the same.

        Raises:
            ToolDefinitionError: the function takes another input, the tool has such a function, or it is an object.
        """
        if self.make_body is None:
            raise ToolDefinitionError(
                f"Tool {self.name!r} is an object; give it a method run_background(arguments, context) instead"
            )
        self._set_background(self.make_body(function))
        return function

    def _set_background(self, body: Body) -> None:
        if self.background_body is not None:
            raise ToolDefinitionError(f"Tool {self.name!r} has two functions for the background; keep one of them")
        needs = self.needs | body.needs
        _refuse_deps_elsewhere(self.definition, needs)
        self.definition = replace(self.definition, hints=replace(self.definition.hints, supports_background=True))
        self.needs = needs
        self.background_body = body

    def in_background(self) -> Tool:
        """The tool as a background run runs it: with its own body for that, if it has one."""
        body = self.background_body
        if body is None:
            return self
        changed = self.with_definition()
        changed.validate, changed.invoke, changed.direct = body.validate, body.invoke, body.direct
        changed.mode = "process" if self.definition.isolation == "process" else body.mode
        changed.needs_context, changed.__wrapped__ = body.needs_context, body.function
        changed.background_body = None
        return changed

    def claims_of(self, arguments: Mapping[str, Any]) -> tuple[Claim, ...]:
        """The resources that a call with these arguments reads and writes."""
        return self.claims(arguments) if callable(self.claims) else self.claims

    def with_definition(self, **changes: Unpack[DefinitionChanges]) -> Self:
        """Return a tool that runs the same code under a changed definition; the id stays.

        A changed input schema holds beside the tool's own: arguments must fit both.
        """
        changed = object.__new__(type(self))
        for slot in Tool.__slots__:
            if hasattr(self, slot):
                object.__setattr__(changed, slot, getattr(self, slot))
        changed.definition = definition = replace(self.definition, **changes)
        _refuse_deps_elsewhere(definition, self.needs)
        if "secret" in changes:
            _require_secret(definition, _properties(definition.input_schema))
        if "concurrency" in changes:
            changed.claims = compile_claims(definition.concurrency, owner=changed.name, parameters=None)
        if "input_schema" in changes:
            own, body = compile_schema(definition.input_schema, owner=changed.name), self.background_body
            changed.validate = _both(own, self.validate)
            changed.background_body = None if body is None else body._replace(validate=_both(own, body.validate))
        if "output_schema" in changes or "hints" in changes:
            changed.check_output = _output_check(definition, at_first_use="output_schema" not in changes)
            if "output_schema" in changes or definition.hints.persist_output:
                changed.output_type = None
        if changed.prepare is None and definition.hints.requires_secrets:
            changed.prepare = _nothing_to_prepare
        if "events" in changes:
            changed.check_events = {
                event: compile_output_schema(schema, owner=changed.name) for event, schema in definition.events.items()
            }
        if definition.isolation == "process":
            changed.mode = "process"
        elif self.mode == "process" and self.__wrapped__ is not None:
            changed.mode = "async" if is_async(self.__wrapped__) else "thread"
        return changed

    @classmethod
    def from_schema(
        cls,
        *,
        name: str,
        description: str = "",
        input_schema: Mapping[str, Any] | None = None,
        handler: Callable[..., Any],
        **options: Unpack[ToolOptions],
    ) -> Tool:
        """Make a tool of raw JSON Schema and a handler that takes `Arguments`, and a `ToolContext` if it has room.

        Options are those of `@tool`. The schema is compiled here; nothing is ever fetched for it.
        """
        if not callable(handler):
            raise ToolDefinitionError(f"Tool {name!r} has the handler {handler!r}, which cannot be called")
        schema = dict(input_schema) if isinstance(input_schema, Mapping) else input_schema
        if isinstance(schema, bool):
            raise ToolDefinitionError(f"Tool {name!r} has input_schema={schema!r}; use a dict, or None for any object")
        make_body = functools.partial(_handler_body, name, compile_schema(schema, owner=name), options.get("secret"))
        body = make_body(handler)
        made = cls(
            define(
                options,
                name=name,
                id=f"schema.{name}",
                description=description,
                input_schema=schema or ANY_OBJECT,
            ),
            validate=body.validate,
            invoke=body.invoke,
            mode=body.mode,
            needs_context=body.needs_context,
            parameters=_properties(schema),
            needs=read_needs(options, name),
            prepare=options.get("prepare"),
            screen=options.get("screen"),
            subject=options.get("subject"),
            function=handler,
            make_body=make_body,
        )
        if (background := options.get("background")) is not None:
            made.background(background)
        return made

    @classmethod
    def from_object(cls, thing: ToolObject) -> Tool:
        """Make a tool of an object with a `definition` and an async `run(arguments, context)`."""
        definition = thing.definition
        if not isinstance(definition, ToolDefinition):
            raise ToolDefinitionError(
                f"{type(thing).__name__!r} has a definition of type {type(definition).__name__!r}; use ToolDefinition"
            )
        name, prepare = definition.name, getattr(thing, "prepare", None)
        run: Any = thing.run
        if not callable(run) or not _takes(run, 2):
            raise ToolDefinitionError(f"Tool {name!r} has no run method of the form run(arguments, context); add one")
        if prepare is not None and not callable(prepare):
            raise ToolDefinitionError(f"Tool {name!r} has prepare={prepare!r:.200}; make it a method, or leave it out")
        background = getattr(thing, "run_background", None)
        if background is not None and not (callable(background) and _takes(background, 2)):
            raise ToolDefinitionError(
                f"Tool {name!r} has a run_background that is not of the form run_background(arguments, context); "
                "write it so, or leave it out"
            )
        body = _object_body(compile_schema(definition.input_schema, owner=name), definition.secret, run)
        made = cls(
            definition,
            validate=body.validate,
            invoke=body.invoke,
            mode=body.mode,
            needs_context=True,
            parameters=_properties(definition.input_schema),
            prepare=prepare,
            subject=getattr(thing, "subject", None),
            function=run,
        )
        if background is not None:
            made._set_background(_object_body(body.validate, definition.secret, background))
        return made

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as if it were not decorated."""
        if self.__wrapped__ is None:
            raise TypeError(f"Tool {self.name!r} has no plain function to call; run it through a session")
        return cast("R", self.__wrapped__(*args, **kwargs))

    @overload
    def __get__(self: _Method[type[S], Rest, Result], instance: S | None, owner: type[S], /) -> Tool[Rest, Result]: ...
    @overload
    def __get__(self, instance: None, owner: type, /) -> Self: ...
    @overload
    def __get__(self: _Method[S, Rest, Result], instance: S, owner: type[S], /) -> Tool[Rest, Result]: ...
    @overload
    def __get__(self, instance: object, owner: type, /) -> Self: ...
    def __get__(self, instance: object, owner: type, /) -> object:
        """The tool itself: a finished tool needs no object. `ToolDeclaration` binds methods."""
        return self

    def __repr__(self) -> str:
        return f"<Tool {self.name!r}>"


def _handler_body(name: str, validate: Validate, secret: str | None, handler: Callable[..., Any]) -> Body:
    """The body of a handler of a raw schema."""
    if not callable(handler):
        raise ToolDefinitionError(f"Tool {name!r} has the handler {handler!r}, which cannot be called")
    wants_context = _takes_context(handler, name)
    return Body(
        validate,
        (lambda arguments, context: handler(Arguments(arguments, secret), context))
        if wants_context
        else (lambda arguments, context: handler(Arguments(arguments, secret))),
        "async" if is_async(handler) else "thread",
        wants_context,
        handler,
    )


def _object_body(validate: Validate, secret: str | None, run: Callable[..., Any]) -> Body:
    """The body of a method of an object."""
    mode: Mode = "async" if is_async(run) else "thread"
    return Body(validate, lambda arguments, context: run(Arguments(arguments, secret), context), mode, True, run)


def _refuse_deps_elsewhere(definition: ToolDefinition, needs: frozenset[str]) -> None:
    """Refuse a tool that would need the dependencies of this process in another one."""
    if definition.isolation == "process" and "deps" in needs:
        raise ToolDefinitionError(
            f"Tool {definition.name!r} takes ToolContext[...] with the dependencies of its app, and has "
            "isolation='process', where they are not; drop the isolation, or annotate the plain ToolContext and "
            "create the dependencies in the tool"
        )


def _require_secret(definition: ToolDefinition, parameters: Iterable[str] | None) -> None:
    """Refuse a tool whose secret is not one of its parameters: the value would be stored and shown like any other.

    `parameters` are the names that a model gives; None where any name may be given.
    """
    if definition.secret is not None and parameters is not None and definition.secret not in parameters:
        have = ", ".join(sorted(parameters)) or "none"
        raise ToolDefinitionError(
            f"Tool {definition.name!r} has secret={definition.secret!r}, which is not one of its parameters; "
            f"its parameters are: {have}"
        )


def is_async(function: Callable[..., Any]) -> bool:
    """True when calling `function` gives a coroutine."""
    if type(function) is FunctionType and function.__code__.co_flags & inspect.CO_COROUTINE:
        return True
    while isinstance(function, functools.partial):
        function = function.func
    if inspect.iscoroutinefunction(function):
        return True
    return not inspect.isroutine(function) and inspect.iscoroutinefunction(type(function).__call__)


def _takes_context(handler: Callable[..., Any], name: str) -> bool:
    """True when a raw-schema handler has room for a second positional argument."""
    if not _takes(handler, 1) and not _takes(handler, 2):
        raise ToolDefinitionError(
            f"Tool {name!r} has a handler that does not take its arguments; write it as handler(args) or "
            "handler(args, context)"
        )
    return _takes(handler, 2, unknown=False)


def _takes(function: Callable[..., Any], count: int, *, unknown: bool = True) -> bool:
    """True when `function` can be called with this many positional arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return unknown  # A function written in C has no such attribute.
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _output_check(definition: ToolDefinition, *, at_first_use: bool) -> OutputCheck | None:
    """The check of a value before it becomes an outcome. A schema that is known to be valid is compiled when it is
    first used: most values of such tools need no check."""
    schema = definition.output_schema
    if schema is not None:
        if not at_first_use:
            return compile_output_schema(schema, owner=definition.name)
        compiled: list[OutputCheck] = []

        def check(payload: bytes) -> list[ArgumentProblem]:
            if not compiled:
                compiled.append(compile_output_schema(schema, owner=definition.name))
            return compiled[0](payload)

        return check
    # Output that goes to a file takes the full path of an outcome, as a checked value does.
    return _fits_always if definition.hints.persist_output else None


def _fits_always(payload: bytes) -> list[ArgumentProblem]:
    return []


def _nothing_to_prepare(arguments: dict[str, Any], call: object) -> None:
    """For a tool that requires secrets: its call waits until they were looked for, as for a prepare step."""


def _both(first: Validate, second: Validate) -> Validate:
    def validate(raw: bytes) -> dict[str, Any]:
        first(raw)
        return second(raw)

    return validate


def _properties(schema: Mapping[str, Any] | None) -> Iterable[str] | None:
    properties = (schema or {}).get("properties")
    return properties if isinstance(properties, Mapping) else None

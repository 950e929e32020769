"""Functions as tools. Owns `@tool`; does not own how a signature is read."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, Self, TypeVar, Unpack, cast, overload

from msgspec.structs import replace

from toolwright.errors import ToolDefinitionError
from toolwright.tools.body import Body, Invoke, require_same_input
from toolwright.tools.definition import DefinitionChanges
from toolwright.tools.options import ToolOptions, define, read_needs
from toolwright.tools.tool import F, Tool

if TYPE_CHECKING:
    from toolwright.tools.annotations import FrameLocals
    from toolwright.tools.function_schema import Signature

P = ParamSpec("P")
R = TypeVar("R")


class ToolDecorator(Protocol):
    """The decorator that `@tool(...)` with options returns: it makes a tool of a function and keeps the function's
    type."""

    @overload
    def __call__(self, function: staticmethod[P, R], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, function: classmethod[Any, P, R], /) -> Tool[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> Tool[P, R]: ...


@overload
def tool(
    function: staticmethod[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> Tool[P, R]: ...
@overload
def tool(
    function: classmethod[Any, P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> Tool[P, R]: ...
@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> Tool[P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, **options: Unpack[ToolOptions]
) -> ToolDecorator: ...
def tool(
    function: object = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    **options: Unpack[ToolOptions],
) -> object:
    """Make a tool of a function, method or callable object, sync or async.

    Its name, description, schemas and parameter descriptions come from the function; options set the rest. A wrong
    definition fails here, with a message that names the tool and the remedy.
    """
    if function is None:
        return lambda found: _declare(found, name, description, options)
    return _declare(function, name, description, options)


def _declare(function: object, name: str | None, description: str | None, options: ToolOptions) -> Tool:
    from toolwright.tools.function_schema import UnresolvedAnnotation, capture_locals, is_unbound_method

    if isinstance(function, Tool):
        raise ToolDefinitionError(f"{function!r} is a tool already; apply @tool once")
    if isinstance(function, classmethod):
        return ToolDeclaration(function.__func__, name, description, options, capture_locals(2), of_class=True)
    if not callable(function) or isinstance(function, type):
        raise ToolDefinitionError(f"{function!r} cannot be a tool; use a function, a method or a callable object")
    code = inspect.unwrap(function)
    if inspect.isgeneratorfunction(code) or inspect.isasyncgenfunction(code):
        raise ToolDefinitionError(
            f"Tool {name or _name_of(function)!r} is a generator, and a tool gives one value; return a list, "
            "and report intermediate results by ctx.output"
        )
    declaration = ToolDeclaration(function, name, description, options, capture_locals(2))
    if is_unbound_method(function):
        return declaration
    try:
        return declaration.resolve(at_definition=True)
    except UnresolvedAnnotation:
        # A type further down the module: tried again when the tool is registered.
        return declaration


class ToolDeclaration(Tool):
    """A tool that is built when it is first used: a method needs its object, and a type may be defined further down.

    A method gives the tool of an instance when it is read from that instance, and calls the function when it is called.
    """

    __slots__ = ("_description", "_local_names", "_name", "_of_class", "_options")

    def __init__(
        self,
        function: Callable[..., Any],
        name: str | None,
        description: str | None,
        options: ToolOptions,
        local_names: FrameLocals,
        *,
        of_class: bool = False,
    ) -> None:
        self.__wrapped__ = function
        self._name = name or _name_of(function)
        self._description = description
        self._options = options
        self._local_names = local_names
        self._of_class = of_class

    @property
    def name(self) -> str:
        """The name a model calls it by."""
        return self._name

    def resolve(self, *, at_definition: bool = False) -> Tool:
        """Build the tool.

        A return type that cannot be found may still be defined further down when this is `at_definition`; later it is
        a type for type checkers only, and the tool has no output schema.

        Raises:
            ToolDefinitionError: the definition is wrong, or the method is not bound to an object.
        """
        from toolwright.tools.function_schema import (
            Returned,
            UnresolvedAnnotation,
            is_unbound_method,
            read_return,
            read_signature,
        )

        function, name = self.__wrapped__, self._name
        if function is None or self._of_class or is_unbound_method(function):
            raise ToolDefinitionError(
                f"Tool {name!r} is a method and has no object; register the method of an instance, as in obj.{name}"
            )
        signature = read_signature(function, name=name, localns=self._local_names)
        body = _function_body(function, signature)
        definition = define(
            self._options,
            name=name,
            id=_id_of(function),
            description=signature.description if self._description is None else self._description,
            input_schema=signature.input_schema,
        )
        returned = Returned()
        if "output_schema" not in self._options:
            try:
                returned = read_return(function, signature.names, owner=name)
            except UnresolvedAnnotation:
                if at_definition:
                    raise
        made = Tool(
            definition if returned.schema is None else replace(definition, output_schema=returned.schema),
            output_type=returned.exact,
            output_schema_is_valid=returned.schema is not None,
            validate=body.validate,
            invoke=body.invoke,
            mode=body.mode,
            needs_context=body.needs_context,
            needs=read_needs(self._options, name) | body.needs,
            parameters=signature.parameters,
            prepare=self._options.get("prepare"),
            screen=self._options.get("screen"),
            subject=self._options.get("subject"),
            function=function,
            direct=body.direct,
            make_body=functools.partial(_background_body, name, signature.input_schema, self._local_names),
        )
        if (background := self._options.get("background")) is not None:
            made.background(background)
        return made

    def background(self, function: F) -> F:
        """Use another function for the background runs of this tool, as `Tool.background` does.

        Raises:
            ToolDefinitionError: the tool has such a function already.
        """
        if "background" in self._options:
            raise ToolDefinitionError(f"Tool {self._name!r} has two functions for the background; keep one of them")
        self._options = {**self._options, "background": function}
        return function

    def with_definition(self, **changes: Unpack[DefinitionChanges]) -> Self:
        return cast("Self", self.resolve().with_definition(**changes))

    def __getattr__(self, name: str) -> object:
        # Reached only for attributes that building sets and `__init__` does not.
        if name not in Tool.__slots__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        built = self.resolve()
        for slot in Tool.__slots__:
            setattr(self, slot, getattr(built, slot))
        return getattr(built, name)

    def __get__(self, instance: object, owner: type, /) -> Any:
        bound_to, bind = owner if self._of_class else instance, getattr(self.__wrapped__, "__get__", None)
        if bound_to is None or bind is None:
            return self
        from toolwright.tools.function_schema import is_unbound_method

        bound, options = bind(bound_to, owner), self._options
        background = options.get("background")
        if background is not None and is_unbound_method(background):
            options = {**options, "background": background.__get__(bound_to, owner)}
        return ToolDeclaration(bound, self._name, self._description, options, self._local_names).resolve()

    def __repr__(self) -> str:
        return f"<Tool {self._name!r}, not yet built>"


def as_tool(thing: object) -> Tool:
    """Bring whatever may be registered to a `Tool`.

    Raises:
        ToolDefinitionError: it is nothing that can be a tool.
    """
    if isinstance(thing, ToolDeclaration):
        return thing.resolve()
    if isinstance(thing, Tool):
        return thing
    if inspect.ismethod(thing) and isinstance(thing.__func__, ToolDeclaration):
        # A class method since Python 3.13, which binds the declaration as if it were a function.
        return as_tool(thing.__func__.__get__(thing.__self__, type(thing.__self__)))
    if hasattr(thing, "definition") and hasattr(thing, "run"):
        return Tool.from_object(thing)
    if callable(thing) and not isinstance(thing, type):
        return as_tool(tool(thing))
    raise ToolDefinitionError(
        f"{thing!r} is not a tool; decorate a function with @tool, or use Tool.from_schema or an object with "
        "a definition and a run method"
    )


def tools_of(instance: object) -> list[Tool]:
    """The tools of an object: its methods under `@tool`, those of its base classes first, in the order of their
    definition.

    Static and class methods are among them. A subclass that overrides one without `@tool` takes it away.

    Raises:
        ToolDefinitionError: it is a class, has no such method, or a method cannot be a tool.
    """
    if isinstance(instance, type):
        raise ToolDefinitionError(
            f"{instance!r} is a class, and its methods need an object; use tools_of({instance.__name__}(...))"
        )
    kind = type(instance)
    names = dict.fromkeys(name for base in reversed(kind.__mro__) for name in vars(base))
    found = [as_tool(getattr(instance, name)) for name in names if _is_declared(inspect.getattr_static(kind, name))]
    if not found:
        raise ToolDefinitionError(f"{instance!r:.200} has no method under @tool; decorate the methods that are tools")
    return found


def _is_declared(attribute: object) -> bool:
    if isinstance(attribute, (staticmethod, classmethod)):
        attribute = attribute.__func__
    return isinstance(attribute, Tool)


def _function_body(function: Callable[..., Any], signature: Signature) -> Body:
    return Body(
        signature.validate,
        _invoker(function, signature.context_parameter),
        "async" if signature.is_async else "thread",
        signature.context_parameter is not None,
        function,
        function if signature.context_parameter is None else None,
        frozenset({"deps"} if signature.wants_deps else ()),
    )


def _background_body(
    name: str, input_schema: Mapping[str, Any], local_names: Mapping[str, Any] | None, function: Callable[..., Any]
) -> Body:
    """The body of a function for the background runs of a tool, whose parameters are those of the tool."""
    from toolwright.tools.function_schema import read_signature

    if not callable(function) or isinstance(function, type):
        raise ToolDefinitionError(f"Tool {name!r} has background={function!r:.200}; use a function")
    signature = read_signature(function, name=name, localns=local_names)
    require_same_input(name, input_schema, signature.input_schema)
    return _function_body(function, signature)


def _invoker(function: Callable[..., Any], context_parameter: str | None) -> Invoke:
    if context_parameter is None:
        return lambda arguments, context: function(**arguments)

    def invoke(arguments: dict[str, Any], context: object) -> object:
        return function(**arguments, **{context_parameter: context})

    return invoke


def _code_of(function: object) -> Any:
    while not hasattr(function, "__qualname__") and hasattr(function, "func"):
        function = function.func
    return function if hasattr(function, "__qualname__") else type(function)


def _name_of(function: object) -> str:
    return str(_code_of(function).__qualname__.rpartition(".")[2])


def _id_of(function: object) -> str:
    code = _code_of(function)
    return f"{code.__module__}.{code.__qualname__}"

"""Definitions of tools as they are shown. Owns their table and their plain data; `wire` owns other shapes."""

from __future__ import annotations

from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from toolwright import jsonx
from toolwright.cli.display.styles import new_table
from toolwright.tools.definition import NO_TIMEOUT, ToolDefinition


def definition_data(definition: ToolDefinition) -> dict[str, Any]:
    """A definition as plain data. A probe function shows as its name."""
    shown: dict[str, Any] = {}
    for name in definition.__struct_fields__:
        value = getattr(definition, name)
        if name == "capabilities":
            value = sorted(value)
        elif name == "on_crash" and callable(value):
            value = getattr(value, "__qualname__", type(value).__name__)
        elif name == "retry":
            value = {"attempts": value.attempts}
        elif name == "concurrency":
            value = {**value._asdict(), "exclusive": value.exclusive}
        shown[name] = msgspec.to_builtins(value)
    return shown


def definition_table(definitions: list[ToolDefinition]) -> Table:
    """A line for each tool and for each of its parameters."""
    table = new_table()
    table.add_column("tool", style="bold cyan", no_wrap=True)
    table.add_column("type", style="green", no_wrap=True)
    table.add_column("description", overflow="fold")
    for definition in definitions:
        about = Text(definition.description.partition("\n")[0])
        about.append(f"  [{', '.join(traits(definition))}]", style="dim")
        table.add_row(Text(definition.name), "", about)
        properties = definition.input_schema.get("properties", {})
        required = definition.input_schema.get("required", ())
        for name, schema in properties.items():
            shown = schema if isinstance(schema, dict) else {}
            mark = "" if name in required else "?"
            table.add_row(
                Text(f"  {name}{mark}", style="not bold"),
                Text(type_name(shown, definition.input_schema) + _default(shown)),
                Text(shown.get("description", ""), style="dim"),
            )
    return table


def traits(definition: ToolDefinition) -> list[str]:
    """The properties of a tool beside its schema, in short words."""
    concurrency = definition.concurrency
    found = ["readonly"] if definition.hints.readonly else []
    if concurrency.exclusive:
        found.append("exclusive")
    elif concurrency.parallel:
        found.append("parallel")
    if concurrency.key is not None:
        found.append(f"key {concurrency.key}")
    for verb, resources in (("reads", concurrency.reads), ("writes", concurrency.writes)):
        if resources:
            found.append(f"{verb} {', '.join(item.source for item in resources)}")
    if definition.timeout is not None:
        found.append("no timeout" if definition.timeout == NO_TIMEOUT else f"{definition.timeout:g} s")
    if definition.isolation == "process":
        found.append("own process")
    if definition.approval == "required":
        found.append("needs approval")
    return found


def type_name(schema: dict[str, Any], root: dict[str, Any]) -> str:
    """The type that a schema describes, in a word or a few."""
    if "$ref" in schema:
        name = str(schema["$ref"]).rpartition("/")[2]
        target = root.get("$defs", {}).get(name, {})
        return type_name(target, root) if "enum" in target else name
    if "enum" in schema:
        return " | ".join(jsonx.encode(item).decode() for item in schema["enum"])
    if "const" in schema:
        return jsonx.encode(schema["const"]).decode()
    for choice in ("anyOf", "oneOf"):
        if choice in schema:
            return " | ".join(type_name(item, root) for item in schema[choice])
    kind = schema.get("type", "any")
    if kind == "array":
        items = schema.get("items")
        return f"list of {type_name(items, root)}" if isinstance(items, dict) else "list"
    return " | ".join(kind) if isinstance(kind, list) else str(kind)


def _default(schema: dict[str, Any]) -> str:
    return f" = {jsonx.encode(schema['default']).decode()}" if "default" in schema else ""

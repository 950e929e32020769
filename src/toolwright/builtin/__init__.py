"""The tools in the box. Owns which there are; each group has a file of its own.

They see only the things that a user's tool sees: the context and the protocols of the session's services.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from toolwright.builtin.capabilities import automatic, capability

if TYPE_CHECKING:
    from toolwright.tools.tool import Tool

__all__ = ["automatic", "capability", "default_tools"]

_DEFAULTS = {
    "time_and_echo": ("get_current_time", "echo", "report_progress"),
    "arithmetic": ("add", "subtract", "multiply", "divide"),
    "weather": ("get_weather", "get_forecast"),
    "todos": ("write_todos",),
    "file_reading": ("read_file", "list_directory", "grep_files", "stat_file"),
    "file_editing": ("write_file", "edit_file", "delete_file"),
    "web": ("web_fetch",),
}


def default_tools() -> list[Tool]:
    """The tools that are useful from the first minute and harmless: eighteen, and none of the stronger ones.

    Tools that run commands or store secrets come with their `capability`.
    """
    # Imported when they are asked for: a program that wants one capability pays for no other.
    return [
        getattr(import_module(f"toolwright.builtin.{home}"), name)
        for home, names in _DEFAULTS.items()
        for name in names
    ]

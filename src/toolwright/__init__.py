"""The durable tool runtime for AI agents."""

from toolwright.calls.batch import Batch
from toolwright.calls.hooks import Answer, HookCall, ReplaceArguments
from toolwright.calls.policy import Policy, Request, Rule
from toolwright.calls.record import CallRecord, MemoryCallLog
from toolwright.errors import (
    BatchFailed,
    ConversionError,
    PolicyError,
    RegistryError,
    RuntimeClosed,
    ToolDefinitionError,
    ToolError,
    ToolwrightError,
)
from toolwright.runtime import Runtime, Session
from toolwright.tools.arguments import Arguments
from toolwright.tools.call import ToolCall
from toolwright.tools.claims import path, resource, tree
from toolwright.tools.context import ToolContext
from toolwright.tools.definition import Hints, ToolDefinition
from toolwright.tools.function import tool
from toolwright.tools.outcome import (
    Attachment,
    ConnectionRequired,
    Failure,
    Image,
    Pending,
    Success,
    ToolOutcome,
)
from toolwright.tools.registry import ToolRegistry
from toolwright.tools.retry import RetryPolicy
from toolwright.tools.scopes import ScopedRegistry, filtered, overridden, prefixed, renamed
from toolwright.tools.tool import Tool

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Arguments",
    "Attachment",
    "Batch",
    "BatchFailed",
    "CallRecord",
    "ConnectionRequired",
    "ConversionError",
    "Failure",
    "Hints",
    "HookCall",
    "Image",
    "MemoryCallLog",
    "Pending",
    "Policy",
    "PolicyError",
    "RegistryError",
    "ReplaceArguments",
    "Request",
    "RetryPolicy",
    "Rule",
    "Runtime",
    "RuntimeClosed",
    "ScopedRegistry",
    "Session",
    "Success",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDefinition",
    "ToolDefinitionError",
    "ToolError",
    "ToolOutcome",
    "ToolRegistry",
    "ToolwrightError",
    "filtered",
    "overridden",
    "path",
    "prefixed",
    "renamed",
    "resource",
    "tool",
    "tree",
]

"""The durable tool runtime for AI agents."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolwright.app import App
    from toolwright.calls.around import Attempt
    from toolwright.calls.batch import Batch
    from toolwright.calls.hooks import Answer, HookCall, PrepareCall, ProjectedCall, ReplaceArguments
    from toolwright.calls.judgement import Judgement
    from toolwright.calls.policy import Policy, PolicySettings, Request, Rule
    from toolwright.calls.record import CallRecord, MemoryCallLog
    from toolwright.calls.suspend.approvals import Approval
    from toolwright.calls.suspend.questions import Question
    from toolwright.errors import (
        BatchFailed,
        CapabilityError,
        ConversionError,
        DriverError,
        DriverUnavailable,
        KeyRefused,
        MachineError,
        MissingRequirement,
        PolicyError,
        RegistryError,
        ReplayMismatch,
        RuntimeClosed,
        StoreDamaged,
        StoreError,
        StoreUnavailable,
        ToolDefinitionError,
        ToolwrightError,
        TurnError,
    )
    from toolwright.runtime.runtime import Runtime
    from toolwright.session.open_waits import OpenWait, Resolved
    from toolwright.session.recovery import Recovered, Unfinished
    from toolwright.session.session import Session
    from toolwright.stores.contracts.sessions import Quota, Quotas
    from toolwright.tools.arguments import Arguments
    from toolwright.tools.background_protocols import ScheduleOptions, SpawnOptions, TriggerOptions
    from toolwright.tools.call import ToolCall
    from toolwright.tools.capability import Capability
    from toolwright.tools.claims import path, resource, tree
    from toolwright.tools.context import ToolContext
    from toolwright.tools.definition import NO_TIMEOUT, Hints, ToolDefinition
    from toolwright.tools.function import tool, tools_of
    from toolwright.tools.model import Model, ModelAnswer, ModelError, ModelRequest, Usage
    from toolwright.tools.options import ToolOptions
    from toolwright.tools.outcome import (
        Attachment,
        ConnectionRequired,
        Decision,
        Failure,
        Image,
        Pending,
        Success,
        ToolError,
        ToolOutcome,
    )
    from toolwright.tools.registry import ScopedRegistry, ToolRegistry
    from toolwright.tools.registry_views import filtered, overridden, prefixed, renamed
    from toolwright.tools.retry_policy import RetryPolicy
    from toolwright.tools.subject import Subject
    from toolwright.tools.tool import Screened, Tool
    from toolwright.tools.turn_protocols import Budget, ContextWindow, TurnEvent, TurnInfo, TurnOutcome, TurnWait

__version__ = "0.1.0"

# Each name is imported when it is first used: a program pays only for the parts it uses.
_HOMES = {
    "NO_TIMEOUT": "toolwright.tools.definition",
    "Answer": "toolwright.calls.hooks",
    "App": "toolwright.app",
    "Approval": "toolwright.calls.suspend.approvals",
    "Arguments": "toolwright.tools.arguments",
    "Attachment": "toolwright.tools.outcome",
    "Attempt": "toolwright.calls.around",
    "Batch": "toolwright.calls.batch",
    "BatchFailed": "toolwright.errors",
    "Budget": "toolwright.tools.turn_protocols",
    "CallRecord": "toolwright.calls.record",
    "Capability": "toolwright.tools.capability",
    "CapabilityError": "toolwright.errors",
    "ConnectionRequired": "toolwright.tools.outcome",
    "ContextWindow": "toolwright.tools.turn_protocols",
    "ConversionError": "toolwright.errors",
    "DriverError": "toolwright.errors",
    "DriverUnavailable": "toolwright.errors",
    "Decision": "toolwright.tools.outcome",
    "Failure": "toolwright.tools.outcome",
    "Hints": "toolwright.tools.definition",
    "HookCall": "toolwright.calls.hooks",
    "Image": "toolwright.tools.outcome",
    "Judgement": "toolwright.calls.judgement",
    "KeyRefused": "toolwright.errors",
    "MachineError": "toolwright.errors",
    "MemoryCallLog": "toolwright.calls.record",
    "MissingRequirement": "toolwright.errors",
    "Model": "toolwright.tools.model",
    "ModelAnswer": "toolwright.tools.model",
    "ModelError": "toolwright.tools.model",
    "ModelRequest": "toolwright.tools.model",
    "OpenWait": "toolwright.session.open_waits",
    "Pending": "toolwright.tools.outcome",
    "Policy": "toolwright.calls.policy",
    "PolicyError": "toolwright.errors",
    "PolicySettings": "toolwright.calls.policy",
    "PrepareCall": "toolwright.calls.hooks",
    "ProjectedCall": "toolwright.calls.hooks",
    "Question": "toolwright.calls.suspend.questions",
    "Quota": "toolwright.stores.contracts.sessions",
    "Quotas": "toolwright.stores.contracts.sessions",
    "Recovered": "toolwright.session.recovery",
    "RegistryError": "toolwright.errors",
    "ReplaceArguments": "toolwright.calls.hooks",
    "ReplayMismatch": "toolwright.errors",
    "Request": "toolwright.calls.policy",
    "Resolved": "toolwright.session.open_waits",
    "RetryPolicy": "toolwright.tools.retry_policy",
    "Rule": "toolwright.calls.policy",
    "Runtime": "toolwright.runtime.runtime",
    "RuntimeClosed": "toolwright.errors",
    "ScheduleOptions": "toolwright.tools.background_protocols",
    "ScopedRegistry": "toolwright.tools.registry",
    "Screened": "toolwright.tools.tool",
    "Session": "toolwright.session.session",
    "SpawnOptions": "toolwright.tools.background_protocols",
    "StoreDamaged": "toolwright.errors",
    "StoreError": "toolwright.errors",
    "StoreUnavailable": "toolwright.errors",
    "Subject": "toolwright.tools.subject",
    "Success": "toolwright.tools.outcome",
    "Tool": "toolwright.tools.tool",
    "ToolCall": "toolwright.tools.call",
    "ToolContext": "toolwright.tools.context",
    "ToolDefinition": "toolwright.tools.definition",
    "ToolDefinitionError": "toolwright.errors",
    "ToolError": "toolwright.tools.outcome",
    "ToolOptions": "toolwright.tools.options",
    "ToolOutcome": "toolwright.tools.outcome",
    "ToolRegistry": "toolwright.tools.registry",
    "ToolwrightError": "toolwright.errors",
    "TriggerOptions": "toolwright.tools.background_protocols",
    "TurnError": "toolwright.errors",
    "TurnEvent": "toolwright.tools.turn_protocols",
    "TurnInfo": "toolwright.tools.turn_protocols",
    "TurnOutcome": "toolwright.tools.turn_protocols",
    "TurnWait": "toolwright.tools.turn_protocols",
    "Unfinished": "toolwright.session.recovery",
    "Usage": "toolwright.tools.model",
    "filtered": "toolwright.tools.registry_views",
    "overridden": "toolwright.tools.registry_views",
    "path": "toolwright.tools.claims",
    "prefixed": "toolwright.tools.registry_views",
    "renamed": "toolwright.tools.registry_views",
    "resource": "toolwright.tools.claims",
    "tool": "toolwright.tools.function",
    "tools_of": "toolwright.tools.function",
    "tree": "toolwright.tools.claims",
}

__all__ = [
    "NO_TIMEOUT",
    "Answer",
    "App",
    "Approval",
    "Arguments",
    "Attachment",
    "Attempt",
    "Batch",
    "BatchFailed",
    "Budget",
    "CallRecord",
    "Capability",
    "CapabilityError",
    "ConnectionRequired",
    "ContextWindow",
    "ConversionError",
    "Decision",
    "DriverError",
    "DriverUnavailable",
    "Failure",
    "Hints",
    "HookCall",
    "Image",
    "Judgement",
    "KeyRefused",
    "MachineError",
    "MemoryCallLog",
    "MissingRequirement",
    "Model",
    "ModelAnswer",
    "ModelError",
    "ModelRequest",
    "OpenWait",
    "Pending",
    "Policy",
    "PolicyError",
    "PolicySettings",
    "PrepareCall",
    "ProjectedCall",
    "Question",
    "Quota",
    "Quotas",
    "Recovered",
    "RegistryError",
    "ReplaceArguments",
    "ReplayMismatch",
    "Request",
    "Resolved",
    "RetryPolicy",
    "Rule",
    "Runtime",
    "RuntimeClosed",
    "ScheduleOptions",
    "ScopedRegistry",
    "Screened",
    "Session",
    "SpawnOptions",
    "StoreDamaged",
    "StoreError",
    "StoreUnavailable",
    "Subject",
    "Success",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolDefinition",
    "ToolDefinitionError",
    "ToolError",
    "ToolOptions",
    "ToolOutcome",
    "ToolRegistry",
    "ToolwrightError",
    "TriggerOptions",
    "TurnError",
    "TurnEvent",
    "TurnInfo",
    "TurnOutcome",
    "TurnWait",
    "Unfinished",
    "Usage",
    "filtered",
    "overridden",
    "path",
    "prefixed",
    "renamed",
    "resource",
    "tool",
    "tools_of",
    "tree",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'toolwright' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(home), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

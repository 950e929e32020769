"""The names of attributes, spans and metrics. Owns the strings.

Those that begin with `gen_ai.` are of OpenTelemetry's conventions for generative AI, which are still being developed:
the package `opentelemetry-semantic-conventions` marks its constants as deprecated, so they are written here. Those that
begin with `toolwright.` are ours.
"""

from __future__ import annotations

from typing import Final

OPERATION: Final = "gen_ai.operation.name"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_AGENT: Final = "invoke_agent"
CHAT: Final = "chat"

CONVERSATION: Final = "gen_ai.conversation.id"
AGENT_NAME: Final = "gen_ai.agent.name"
PROVIDER: Final = "gen_ai.provider.name"
ERROR_TYPE: Final = "error.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"

TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
OUTPUT_TYPE: Final = "gen_ai.output.type"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_ID: Final = "gen_ai.response.id"
FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"

TOOL_DURATION: Final = "gen_ai.execute_tool.duration"
AGENT_DURATION: Final = "gen_ai.invoke_agent.duration"
MODEL_DURATION: Final = "gen_ai.client.operation.duration"
TOKEN_USAGE: Final = "gen_ai.client.token.usage"
SECONDS: Final = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
"""The buckets of durations."""
TOKENS: Final = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""The buckets of token counts."""

SCOPE: Final = "toolwright.scope"
BATCH: Final = "toolwright.batch"
SOURCE: Final = "toolwright.source"
PARENT: Final = "toolwright.parent.call.id"
STATUS: Final = "toolwright.status"
CATEGORY: Final = "toolwright.failure.category"
ATTEMPTS: Final = "toolwright.attempts"
QUEUE_TIME: Final = "toolwright.queue_time"
REPLAYED: Final = "toolwright.replayed"
LINK: Final = "toolwright.link"
"""Why a span is linked to an earlier one: "replay", "shared", "takeover" or "continued"."""
TURN: Final = "toolwright.turn.id"
MODEL_CALLS: Final = "toolwright.turn.model_calls"

RETRYING_EVENT: Final = "toolwright.retrying"
WAITING_EVENT: Final = "toolwright.waiting"
WARNING_EVENT: Final = "toolwright.warning"
EMITTED_EVENT: Final = "toolwright.emitted"
ATTEMPT: Final = "toolwright.attempt"
DELAY: Final = "toolwright.delay"
CODE: Final = "toolwright.code"
WAITS_FOR: Final = "toolwright.waits_for"
NAME: Final = "toolwright.name"

_FINISH_REASONS: Final = {"end": "stop", "calls": "tool_call", "refusal": "content_filter"}


def finish_reason(stop: str) -> str:
    """Why a model stopped, in the words of the conventions."""
    return _FINISH_REASONS.get(stop, stop)

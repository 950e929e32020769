"""OpenTelemetry: spans and metrics of calls, turns and requests to models, by the conventions for GenAI.

`App(telemetry=Telemetry())` turns it on. Nothing here is imported before that, and the rest of the package knows only
the protocol of `toolwright.tools.tracing`.
"""

from toolwright.extras import require_extra

require_extra("otel", "toolwright.telemetry")

from toolwright.telemetry.log_filter import TraceIds  # noqa: E402
from toolwright.telemetry.telemetry import Telemetry  # noqa: E402

__all__ = ["Telemetry", "TraceIds"]

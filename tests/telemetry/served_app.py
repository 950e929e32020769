"""An app that another process serves over MCP: its tool says which span is current there."""

from opentelemetry import trace

from toolwright import App, tool
from toolwright.telemetry import Telemetry
from toolwright.telemetry.propagation import traceparent


@tool(readonly=True)
def current() -> str:
    """The span that is current here."""
    return traceparent(trace.get_current_span().get_span_context())


app = App(tools=[current], telemetry=Telemetry())

"""The sections of the benchmark, in the order they run. Each asks one question and answers with a report."""

from collections.abc import Callable, Mapping

from bench.report import Report
from bench.sections import (
    adapters,
    bash,
    batch,
    claims,
    durable,
    durable_peers,
    event_streams,
    files,
    http,
    imports,
    mcp_client,
    mcp_server,
    peers,
    postgres,
    postgres_history,
    postgres_peers,
    postgres_processes,
    postgres_writers,
    recovery,
    redaction,
    replay,
    runs,
    scaling,
    steps,
    telemetry,
    temporal,
    turn_peers,
    turns,
    waiting,
    writers,
)

Section = Callable[[bool, Mapping[str, Report]], Report]
"""Measures, quickly or thoroughly; may read the reports of the sections before it."""

SECTIONS: dict[str, Section] = {
    "imports": imports.section,
    "batch": batch.section,
    "peers": peers.section,
    "scaling": scaling.section,
    "claims": claims.section,
    "durable": durable.section,
    "durable-peers": durable_peers.section,
    "steps": steps.section,
    "writers": writers.section,
    "postgres": postgres.section,
    "postgres-peers": postgres_peers.section,
    "postgres-writers": postgres_writers.section,
    "postgres-processes": postgres_processes.section,
    "postgres-history": postgres_history.section,
    "replay": replay.section,
    "recovery": recovery.section,
    "waiting": waiting.section,
    "files": files.section,
    "redaction": redaction.section,
    "runs": runs.section,
    "bash": bash.section,
    "turns": turns.section,
    "turn-peers": turn_peers.section,
    "mcp-client": mcp_client.section,
    "adapters": adapters.section,
    "mcp-server": mcp_server.section,
    "telemetry": telemetry.section,
    "temporal": temporal.section,
    "http": http.section,
    "event-streams": event_streams.section,
}

PEER_SECTIONS = ("peers", "durable-peers", "postgres-peers", "turn-peers", "adapters")
"""Those that install other libraries."""

"""Whether the service lives and is ready, and the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct
from starlette.responses import Response

from toolwright.errors import StoreError
from toolwright.http.answers import JsonAnswer
from toolwright.http.metrics import MEDIA_TYPE as METRICS_TYPE
from toolwright.http.metrics import prometheus_text
from toolwright.http.openapi import openapi_document
from toolwright.http.operations import Operation, OtherAnswer, ServiceRequest
from toolwright.http.problems import RETRY_AFTER


class Health(Struct, frozen=True):
    """The process answers."""

    status: Literal["ok"]


class Readiness(Struct, frozen=True):
    """Whether requests can be served. `problems` are sentences."""

    status: Literal["ready", "not_ready"]
    problems: list[str]


_OK = b'{"status":"ok"}'


async def get_health(request: ServiceRequest) -> JsonAnswer:
    """The process answers, whatever its store does."""
    return JsonAnswer(_OK)


async def get_ready(request: ServiceRequest) -> JsonAnswer:
    """The store answers, the worker of the runtime lives, and the service does not stop."""
    problems = []
    if not request.service.ready:
        problems.append("the service stops")
    try:
        await request.runtime.turns(limit=1)
        worker = request.runtime.worker
        if worker is not None and not await worker.answers():
            problems.append("the worker does not renew its leases")
    except StoreError as error:
        problems.append(str(error))
    if problems:
        told = Readiness("not_ready", problems)
        return JsonAnswer.of(told, 503, {"Retry-After": str(RETRY_AFTER)})
    return JsonAnswer.of(Readiness("ready", []))


async def get_metrics(request: ServiceRequest) -> Response:
    """The counters of this process, for Prometheus."""
    text = prometheus_text(request.runtime, request.service.counts, request.service.ready)
    return Response(text, headers={"content-type": METRICS_TYPE})


async def get_openapi(request: ServiceRequest) -> dict[str, Any]:
    """The document of every operation."""
    return openapi_document(request.service.operations, "toolwright")


OPERATIONS = (
    Operation(
        method="GET",
        path="/health",
        handler=get_health,
        scope=None,
        summary="Whether the process lives",
        tag="service",
        answer=Health,
    ),
    Operation(
        method="GET",
        path="/ready",
        handler=get_ready,
        scope=None,
        summary="Whether requests can be served",
        tag="service",
        answer=Readiness,
        also=(OtherAnswer(status=503, says="They cannot be served now.", type=Readiness),),
    ),
    Operation(
        method="GET",
        path="/metrics",
        handler=get_metrics,
        scope="read",
        everywhere=True,
        summary="Counters for Prometheus",
        tag="service",
        media_type="text/plain",
    ),
    Operation(
        method="GET",
        path="/openapi.json",
        handler=get_openapi,
        scope=None,
        summary="This document",
        tag="service",
        answer=dict[str, Any],
    ),
)

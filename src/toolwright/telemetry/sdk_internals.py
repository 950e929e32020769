"""What telemetry uses of OpenTelemetry's SDK beyond its public names, for speed. Owns all of that: a new version of the
SDK is looked into here.

`fits` compares what this file was written for, version 1.45, with the version that is installed. Where they differ,
nothing of this is used, and spans and metrics are made with the public API alone, which costs more and tells the same.
A test says which name has changed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from copy import deepcopy
from functools import cache
from random import getrandbits
from threading import Lock, RLock
from time import time_ns
from typing import Any, TypeVar

from opentelemetry import context
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.context import Context
from opentelemetry.context.contextvars_context import ContextVarsRuntimeContext
from opentelemetry.sdk.metrics import (
    AlwaysOffExemplarFilter,
    AlwaysOnExemplarFilter,
    Histogram,
    TraceBasedExemplarFilter,
)
from opentelemetry.sdk.metrics._internal._view_instrument_match import _hash_attributes
from opentelemetry.sdk.metrics._internal.aggregation import _ExplicitBucketHistogramAggregation
from opentelemetry.sdk.metrics._internal.exemplar import AlignedHistogramBucketExemplarReservoir
from opentelemetry.sdk.metrics._internal.measurement import Measurement
from opentelemetry.sdk.metrics._internal.measurement_consumer import SynchronousMeasurementConsumer
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, SynchronousMultiSpanProcessor, Tracer
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, StaticSampler, TraceIdRatioBased
from opentelemetry.trace import (
    NonRecordingSpan,
    ProxyTracer,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    TraceState,
    get_current_span,
    set_span_in_context,
)

from toolwright.telemetry.failures import Failures

Attributes = dict[str, Any]
MOST_ATTRIBUTES = 100
"""A provider that keeps fewer attributes of a span makes its spans itself."""

_new_span = object.__new__
_new_context = tuple.__new__
_new_dict = dict.__new__
_set, _update = dict.__setitem__, dict.update  # a `Context` refuses to be changed
_current: Callable[[], Context] = context.get_current
_attach: Callable[[Context], object] = context.attach
if type(context._RUNTIME_CONTEXT) is ContextVarsRuntimeContext:
    _current = context._RUNTIME_CONTEXT._current_context.get
    _attach = context._RUNTIME_CONTEXT._current_context.set
_KINDS = frozenset({SimpleSpanProcessor, BatchSpanProcessor})
"""Processors that do nothing when a span starts, and only queue or export it when it ends."""
_PARTS = frozenset({"_attributes", "_lock"})
"""The parts of a span without which code can add nothing to it, not even events and links."""
_MAKING = Lock()
_INTERNAL = SpanKind.INTERNAL
(_SPAN_KEY,) = set_span_in_context(NonRecordingSpan(SpanContext(0, 0, is_remote=False)), Context())


class Origin:
    """What the spans of the calls of one batch have in common."""

    __slots__ = (
        *("flags", "info", "is_watched", "parent", "processors", "resource", "scope", "state", "trace_id", "tracer"),
    )

    def __init__(self, tracer: Tracer, parent: SpanContext | None, flags: TraceFlags, state: TraceState) -> None:
        self.tracer = tracer
        self.parent = parent
        self.trace_id = 0 if parent is None else parent.trace_id
        self.flags = flags
        self.state = state
        self.resource = tracer.resource
        self.info = tracer.instrumentation_info
        self.scope = tracer._instrumentation_scope
        self.processors = tracer.span_processor
        self.is_watched = any(type(each) not in _KINDS for each in self.processors._span_processors)
        """True where a processor wants to know of the start of spans, or of an end before it is told."""

    def tell_start(self, span: LightSpan) -> None:
        """Tell the processors that a span has started."""
        self.processors.on_start(span, parent_context=None)


AnySpan = TypeVar("AnySpan", bound="LightSpan")


def start(kind: type[AnySpan], origin: Origin, name: str) -> AnySpan:
    """Start a span, without the constructor of the SDK."""
    span = _new_span(kind)
    span._origin = origin
    span._name = name
    # What `RandomIdGenerator` does, which is the only one that comes here.
    span._context = _new_context(
        SpanContext,
        (
            origin.trace_id or getrandbits(128) or origin.tracer.id_generator.generate_trace_id(),
            getrandbits(64) or origin.tracer.id_generator.generate_span_id(),
            False,
            origin.flags,
            origin.state,
            True,
        ),
    )
    span._start_time = time_ns()
    return span


_OF_ORIGIN: dict[str, Callable[[Origin], Any]] = {
    "_parent": lambda origin: origin.parent,
    "_resource": lambda origin: origin.resource,
    "_instrumentation_info": lambda origin: origin.info,
    "_instrumentation_scope": lambda origin: origin.scope,
    "_sampler": lambda origin: origin.tracer.sampler,
    "_span_processor": lambda origin: origin.processors,
    "_limits": lambda origin: origin.tracer._span_limits,
}
"""The fields of a span that it does not have itself."""


class LightSpan(Span):
    """A span of the SDK that is cheap while only its context is used, as it is by most tools.

    What code can add to, which is attributes, events, links and their lock, is made as the SDK does it when it is first
    used. From then on it is a span like those that the SDK makes.
    """

    # Class attributes are what the SDK's constructor would set.
    _kind = _INTERNAL
    _status = Status(StatusCode.UNSET)
    _end_time: int | None = None
    _trace_config = None
    _record_exception = True
    _set_status_on_exception = True
    _record_end_metrics = None
    _events: Any = ()
    _links: Any = ()
    _touched = False
    """True once there are parts that code can add to."""

    _origin: Origin
    _name: str
    _context: SpanContext
    _start_time: int

    def at_start(self) -> Attributes:
        """The attributes that it begins with."""
        return {}

    def enter(self) -> None:
        """Make it the current span of this context, which ends with the span."""
        made = _new_dict(Context)
        around = _current()
        if around:
            _update(made, around)
        _set(made, _SPAN_KEY, self)
        _attach(made)

    def finish(self, about: Attributes, status: Status | None) -> None:
        """Hand it to the processors with all of its attributes: after `_end_time` was set, and if it is untouched.

        They get the span itself, which does not change any more.
        """
        origin = self._origin
        self._attributes = about
        self._parent = origin.parent
        self._resource = origin.resource
        self._instrumentation_info = origin.info
        self._instrumentation_scope = origin.scope
        if status is not None:
            self._status = status
        if origin.is_watched:
            origin.processors._on_ending(self)
        for processor in origin.processors._span_processors:
            processor.on_end(self)

    def __copy__(self) -> ReadableSpan:
        return self._readable_span()

    def __deepcopy__(self, memo: dict[int, Any]) -> ReadableSpan:
        return deepcopy(self._readable_span(), memo)

    def finish_touched(self, about: Attributes, status: Status | None) -> None:
        """The same for a span that code has added to: `about` are the attributes that come at the end."""
        attributes: Any = self._attributes
        with self._lock:
            attributes.update(about)
            attributes._immutable = True
            if status is not None and self._status.status_code is not StatusCode.OK:
                self._status = status
        processors = self._origin.processors
        processors._on_ending(self)
        processors.on_end(self._readable_span())

    def __getattr__(self, name: str) -> Any:
        of_origin = _OF_ORIGIN.get(name)
        if of_origin is not None:
            return of_origin(self._origin)
        if name not in _PARTS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with _MAKING:
            if not self._touched:
                self._touched = True
                limits, made = self._limits, self.__dict__
                attributes = BoundedAttributes(
                    limits.max_span_attributes,
                    self.at_start(),
                    immutable=False,
                    max_value_len=limits.max_span_attribute_length,
                )
                # What is there already stays: the span may have ended meanwhile.
                made.setdefault("_attributes", attributes)
                made.setdefault("_events", self._new_events())  # type: ignore[no-untyped-call]
                made.setdefault("_links", self._new_links(()))
                made.setdefault("_lock", Lock())
        return self.__dict__[name]


def origin_of(tracer: object) -> Origin | None:
    """The origin of spans below the span that is current; None where the SDK must make the spans itself.

    It must where the answer of the sampler can differ between the spans, or is not to sample them; where a program has
    its own class of tracer, processor of processors or generator of ids; and where spans have narrow limits.
    """
    if type(tracer) is ProxyTracer:  # it is older than its provider
        tracer = tracer._tracer
    if type(tracer) is not Tracer or not fits() or not tracer._is_enabled() or _refusal(tracer) is not None:
        return None
    parent: SpanContext | None = get_current_span().get_span_context()
    if parent is None or not parent.is_valid:
        parent = None
    if not _is_settled(tracer.sampler, parent):
        return None
    trace_id = 1 if parent is None else parent.trace_id
    answer = tracer.sampler.should_sample(None, trace_id, "execute_tool", SpanKind.INTERNAL, {}, ())
    if answer.decision is not Decision.RECORD_AND_SAMPLE:
        return None
    is_random = tracer.id_generator.is_trace_id_random() if parent is None else parent.trace_flags.random_trace_id
    state = answer.trace_state
    return Origin(tracer, parent, _RANDOM if is_random else _SAMPLED, _NO_STATE if state is None else state)


_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_RANDOM = TraceFlags(TraceFlags.SAMPLED | TraceFlags.RANDOM_TRACE_ID)
_NO_STATE = SpanContext(0, 0, is_remote=False).trace_state


def _refusal(tracer: Tracer) -> str | None:
    """Why a tracer must make its spans itself."""
    limits = tracer._span_limits
    most, longest = limits.max_span_attributes, limits.max_span_attribute_length
    if longest is not None or (most is not None and most < MOST_ATTRIBUTES):
        return "spans have limits"
    if type(tracer.id_generator) is not RandomIdGenerator:
        return "ids are the program's"
    if type(tracer.span_processor) is not SynchronousMultiSpanProcessor:
        return "processors are called in another way"
    if type(tracer._tracer_metrics).__name__ != "NoOpTracerMetrics":
        return "the SDK counts its spans"
    return None


def _is_settled(sampler: Sampler, parent: SpanContext | None) -> bool:
    """True where a sampler gives every span below a parent the same answer, and adds nothing to it."""
    decides = type(sampler).should_sample
    if decides is StaticSampler.should_sample:
        return True
    if decides is TraceIdRatioBased.should_sample:
        return parent is not None  # else each span has a trace of its own
    if decides is not ParentBased.should_sample:
        return False
    assert isinstance(sampler, ParentBased)
    if parent is None:
        return _is_settled(sampler._root, None)
    if parent.is_remote:
        chosen = sampler._remote_parent_sampled if parent.trace_flags.sampled else sampler._remote_parent_not_sampled
    else:
        chosen = sampler._local_parent_sampled if parent.trace_flags.sampled else sampler._local_parent_not_sampled
    return _is_settled(chosen, parent)


# --- metrics

MOST_HELD = 500
"""How many measurements with the same attributes wait for the next collection."""
MOST_SETS = 1_000
"""For how many sets of attributes measurements are held."""


class HeldValues:
    """The measurements with the same attributes that the SDK was not given yet, taken in sampled spans."""

    __slots__ = ("_extend", "_histogram", "attributes", "is_first", "waiting")

    def __init__(self, attributes: Attributes, histogram: HeldHistogram) -> None:
        self.attributes = attributes
        self.is_first = True
        """True until there is a measurement since the last collection. The SDK is given the first one at once: so it
        knows since when there are any, and which sets of attributes were the first ones, where it keeps only some."""
        self.waiting: deque[Any] = deque()
        """Of each measurement its value, its time in nanoseconds and its span, one after the other: to hold a tuple for
        each would be work for the garbage collector. They come and go together, whichever thread is at it."""
        self._extend = self.waiting.extend
        self._histogram = histogram

    def add(self, value: float, at: int, span: SpanContext) -> None:
        """Hold a measurement. Its value is not negative."""
        if self.is_first:
            self.is_first = False
            self._histogram.histogram.record(value, self.attributes, _inside(span))
            return
        self._extend((value, at, span))
        if len(self.waiting) >= 3 * MOST_HELD:
            self._histogram.give()


class HeldHistogram:
    """A histogram of the SDK that is given its measurements together.

    It gets them before the SDK collects its metrics, so also at a flush and at its end, and whenever many are there.
    Nobody can read metrics in another way, so that none comes late. To the SDK, this is one more observable instrument.
    """

    def __init__(self, histogram: Any) -> None:
        self.histogram = histogram
        self._consumer = histogram._measurement_consumer
        self._held: dict[tuple[tuple[str, Any], ...], HeldValues] = {}
        self._giving = RLock()
        self._seen: object = None
        self._is_known = False
        self._failures = Failures()
        self._consumer.register_asynchronous_instrument(self)

    @classmethod
    def of(cls, histogram: object) -> HeldHistogram | None:
        """The one of a histogram; None where that must be given each measurement as it comes."""
        histogram = getattr(histogram, "_real_instrument", histogram)  # of a histogram that is older than its provider
        consumer = getattr(histogram, "_measurement_consumer", None)
        if not isinstance(histogram, Histogram) or type(consumer) is not SynchronousMeasurementConsumer or not fits():
            return None
        with _MAKING:  # every `Telemetry` with the same provider has the same histogram
            others: list[object] = [*consumer._async_instruments]
            known = [each for each in others if isinstance(each, HeldHistogram) and each.histogram is histogram]
            return known[0] if known else cls(histogram)

    def can_hold(self) -> bool:
        """True where every reader gathers the histogram in the way that is known here."""
        storages = self._consumer._reader_storages
        if storages is not self._seen:  # it is another one when readers come or go
            kinds = {
                (type(match._aggregation), type(match._aggregation._reservoir))
                for storage in storages.values()
                for match in storage._get_or_init_view_instrument_match(self.histogram)
            }
            self._is_known = kinds <= _KNOWN_KINDS and type(self._consumer._sdk_config.exemplar_filter) in _FILTERS
            self._seen = storages
        return self._is_known and self.histogram._is_enabled()

    def values(self, attributes: Attributes) -> HeldValues | None:
        """Where measurements with these attributes, which nobody changes, are held; None if there are too many sets."""
        key = tuple(attributes.items())
        with self._giving:
            known = self._held.get(key)
            if known is None and len(self._held) < MOST_SETS:
                known = self._held[key] = HeldValues(attributes, self)
            return known

    def callback(self, options: object) -> tuple[()]:
        """Called by the SDK before it collects; it wants the values of an observable instrument, which has none."""
        try:
            for each in list(self._held.values()):
                each.is_first = True
            self.give()
        except Exception:  # the program's readers and views
            self._failures.say("the metrics of calls")
        return ()

    def give(self) -> None:
        """Give the SDK what is held. When it returns, it has also what another thread was about to give it."""
        with self._giving:
            for each in self._held.values():
                if each.waiting:
                    take = each.waiting.popleft
                    taken = [take() for _ in range(len(each.waiting))]
                    self._give(each.attributes, taken[::3], taken[1::3], taken[2::3])

    def _give(self, attributes: Attributes, values: list[float], times: list[int], spans: list[SpanContext]) -> None:
        is_sampled = type(self._consumer._sdk_config.exemplar_filter) is not AlwaysOffExemplarFilter
        for storage in self._consumer._reader_storages.values():
            for match in storage._get_or_init_view_instrument_match(self.histogram):
                wanted = match._view._attribute_keys
                told = {name: value for name, value in attributes.items() if wanted is None or name in wanted}
                with match._lock:
                    aggregation: Any = match._get_or_create_aggregation(_hash_attributes(told), told)
                    if (type(aggregation), type(aggregation._reservoir)) in _KNOWN_KINDS:
                        for index in _aggregate(aggregation, values):
                            if is_sampled:
                                offer = aggregation._reservoir.offer
                                offer(values[index], times[index], attributes, _inside(spans[index]))
                    else:  # of a reader that came just now
                        for value, at, span in zip(values, times, spans, strict=True):
                            measurement = Measurement(value, at, self.histogram, _inside(span), attributes)
                            aggregation.aggregate(measurement, is_sampled)


_KNOWN_KINDS = frozenset({(_ExplicitBucketHistogramAggregation, AlignedHistogramBucketExemplarReservoir)})
_FILTERS = frozenset({TraceBasedExemplarFilter, AlwaysOnExemplarFilter, AlwaysOffExemplarFilter})
"""Filters that give the same answer for all sampled spans."""


def _aggregate(aggregation: Any, values: list[float]) -> Iterable[int]:
    """Add values. Returns the indices of the last one of each bucket, which are those that the reservoir keeps."""
    least, most, bounds = min(values), max(values), aggregation._boundaries
    last: dict[int, int] = {}
    with aggregation._lock:
        counts = aggregation._value
        if counts is None:
            counts = aggregation._value = aggregation._get_empty_bucket_counts()
        aggregation._sum += sum(values)
        if aggregation._record_min_max:
            aggregation._min = min(aggregation._min, least)
            aggregation._max = max(aggregation._max, most)
        bucket = bisect_left(bounds, least)
        if bucket == bisect_left(bounds, most):
            counts[bucket] += len(values)
            last[bucket] = len(values) - 1
        else:
            for index, value in enumerate(values):
                bucket = bisect_left(bounds, value)
                counts[bucket] += 1
                last[bucket] = index
    return last.values()


def _inside(span: SpanContext) -> Context:
    return set_span_in_context(NonRecordingSpan(span), Context())


# --- is it the SDK that this was written for?


@cache
def fits() -> bool:
    """True where the SDK that is installed has what this file uses, and nothing beside it."""
    try:
        return not misfits()
    except Exception:  # of an SDK that is quite different
        return False


_READABLE = {
    *("_name", "_context", "_kind", "_instrumentation_info", "_instrumentation_scope", "_parent", "_start_time"),
    *("_end_time", "_attributes", "_events", "_links", "_resource", "_status"),
}
_SPAN = _READABLE | {
    *("_sampler", "_trace_config", "_record_exception", "_set_status_on_exception", "_span_processor", "_limits"),
    *("_lock", "_record_end_metrics"),
}


class _Sample(Span):
    """A span made by the SDK's constructor, which refuses to make a `Span`."""


def misfits() -> list[str]:
    """What the SDK that is installed has in another way than this file expects."""
    nothing, own = Resource.get_empty(), SpanContext(1, 2, is_remote=False)
    sampled = SpanContext(1, 2, is_remote=False, trace_flags=_RANDOM)
    found = {
        "fields of ReadableSpan": vars(ReadableSpan("", own, resource=nothing)).keys() == _READABLE,
        "fields of Span": vars(_Sample("", own, resource=nothing)).keys() == _SPAN,
        "fields of SpanContext": tuple(sampled) == (1, 2, False, _RANDOM, _NO_STATE, True),
        "flag of random ids": RandomIdGenerator().is_trace_id_random() is True,
        "end of spans": hasattr(SpanProcessor, "_on_ending"),
    }
    return [name for name, is_same in found.items() if not is_same]

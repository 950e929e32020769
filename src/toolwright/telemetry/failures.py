"""Faults of a tracer: of an exporter, a processor or a sampler that the program set up. Owns that they are logged, and
change nothing else."""

from __future__ import annotations

import logging

from toolwright.log_fields import log_fields

log = logging.getLogger("toolwright.telemetry")


class Failures:
    """Logs each kind of fault once: a broken tracer breaks at every call."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def say(self, what: str) -> None:
        """Log the exception that is being handled."""
        if what not in self._said:
            self._said.add(what)
            log.exception(
                "The tracer failed at %s, and the work continues without that; later faults of this kind are not "
                "logged. Look at the providers, processors and samplers of OpenTelemetry",
                what,
                extra=log_fields("telemetry.failed"),
            )

"""The address of a Temporal service: what a URL of the scheme `temporal` says. Owns reading it; connects nothing."""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, unquote, urlsplit

from msgspec import Struct

from toolwright.errors import DriverError
from toolwright.stores.contracts.scheme import without_password

PORT = 7233
QUEUE = "toolwright"
_SETTINGS = ("queue", "heartbeat", "tls", "tls_ca", "tls_cert", "tls_key", "tls_name")
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


class TemporalAddress(Struct, frozen=True, kw_only=True):
    """Where a Temporal service is, and what it is asked for there.

    `heartbeat` is the number of seconds after which Temporal brings the work of a silent worker to another one.
    `tls_ca`, `tls_cert` and `tls_key` are files: of the authority that signed the certificate of the service, of the
    certificate that this program shows, and of its key. `tls_name` is the name in the certificate of the service, where
    that is not the host.
    """

    host: str
    namespace: str = "default"
    queue: str = QUEUE
    heartbeat: float = 10.0
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_name: str | None = None

    def __str__(self) -> str:
        return f"{self.host}, namespace {self.namespace!r}, queue {self.queue!r}"


def read_address(url: str) -> TemporalAddress:
    """Read `temporal://host:7233/namespace?queue=agent&heartbeat=10&tls=true`; only the host must be there.

    Raises:
        DriverError: it is not usable.
    """
    shown = without_password(url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        # Its text may have a part of a password.
        raise DriverError(
            f"The driver {shown!r:.200} is not usable: its host or port cannot be read; "
            "use temporal://host:7233/namespace?queue=agent"
        ) from None
    if parts.username is not None or parts.password is not None:
        raise DriverError(
            "The URL of the driver has a user or password; set TEMPORAL_API_KEY in the environment instead"
        )
    if not host:
        raise DriverError(f"The driver {shown!r:.200} has no host; use temporal://host:7233/namespace?queue=agent")
    namespace = unquote(parts.path.strip("/")) or "default"
    settings: dict[str, str] = {}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in _SETTINGS or name in settings:
            raise DriverError(
                f"The driver {shown!r:.200} has {name!r:.100}, which is unknown or there twice; "
                f"it may have {', '.join(_SETTINGS)}"
            )
        settings[name] = value
    queue = settings.get("queue", QUEUE)
    for what, text in (("namespace", namespace), ("queue", queue)):
        if not _NAME.fullmatch(text) or (what == "namespace" and "/" in text):
            raise DriverError(f"The {what} {text!r:.200} of the driver is not usable; use a short name")
    files = {name: settings[name] for name in ("tls_ca", "tls_cert", "tls_key") if settings.get(name)}
    if ("tls_cert" in files) is not ("tls_key" in files):
        raise DriverError("The driver has one of tls_cert and tls_key; give both, or none")
    for name, file in files.items():
        if not os.path.isfile(file):
            raise DriverError(f"There is no file {file!r:.200} for {name} of the driver; check the path")
    return TemporalAddress(
        host=f"[{host}]:{port or PORT}" if ":" in host else f"{host}:{port or PORT}",
        namespace=namespace,
        queue=queue,
        heartbeat=_seconds(settings.get("heartbeat", "10")),
        tls=_yes(settings.get("tls", "true" if files or "tls_name" in settings else "false")),
        tls_name=settings.get("tls_name") or None,
        **files,
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 1.0 <= seconds <= 3_600.0:
        raise DriverError(
            f"heartbeat={text!r:.100} of the driver is not usable; use a number of seconds from 1 to 3600"
        )
    return seconds


def _yes(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise DriverError(f"tls={text!r:.100} of the driver is not usable; use true or false")
    return text.lower() == "true"

"""A connection to a Temporal service. Owns making it when it is needed, and the errors of a service that is away."""

from __future__ import annotations

import os
from pathlib import Path

from temporalio.client import Client, TLSConfig
from temporalio.service import RPCError, RPCStatusCode

from toolwright.drivers.temporal.address import TemporalAddress
from toolwright.errors import DriverUnavailable

# What the library tells of a connection that did not come about.
_REASONS: tuple[tuple[str, str], ...] = (
    ("ConnectionRefused", "nobody listens there; check that the service runs, and the address"),
    ("dns error", "there is no such host; check the address"),
    ("NotValidForName", "its certificate is another host's; check the host, or name it by tls_name="),
    ("InvalidCertificate", "its certificate is not one of the authority that is known here; check tls_ca="),
    ("CertificateRequired", "it wants a certificate of this program; set tls_cert= and tls_key="),
    ("UnknownCA", "it does not know the certificate of this program; check tls_cert="),
    ("KeyMismatch", "tls_key= is not the key of tls_cert=; check both files"),
    ("ParseError", "tls_cert= or tls_key= cannot be read; use files in the form PEM"),
    ("InvalidContentType", "it does not speak TLS; leave tls= out, or check the port"),
    ("Unauthenticated", "it does not accept the key; check TEMPORAL_API_KEY"),
    ("PermissionDenied", "it does not accept the key; check TEMPORAL_API_KEY"),
)
_HANGS_UP = ("ConnectionReset", "BrokenPipe", "connection closed")


class TemporalConnection:
    """The client of an address: connected at the first use, and again after a failure."""

    def __init__(self, address: TemporalAddress) -> None:
        self._address = address
        self._client: Client | None = None

    async def client(self) -> Client:
        """The client.

        Raises:
            DriverUnavailable: the service does not answer, or cannot be trusted.
        """
        if self._client is None:
            address, key = self._address, os.environ.get("TEMPORAL_API_KEY") or None
            try:
                self._client = await Client.connect(
                    address.host,
                    namespace=address.namespace,
                    api_key=key,
                    # A key never travels in clear text.
                    tls=_tls(address) if address.tls or key is not None else False,
                )
            except (RuntimeError, OSError) as error:  # of the library: it cannot connect; or a file is gone
                raise DriverUnavailable(
                    f"Temporal at {address} cannot be used: {_reason(address, error, key)}"
                ) from None
        return self._client


def away(address: TemporalAddress, error: RPCError) -> DriverUnavailable:
    """The error for a request that Temporal did not accept."""
    told = f"{error.status.name}: {error.message:.300}"
    if error.status == RPCStatusCode.NOT_FOUND and "amespace" in error.message:
        return DriverUnavailable(f"Temporal at {address} has no such namespace ({told}); create it, or check the URL")
    if error.status in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED):
        return DriverUnavailable(f"Temporal at {address} refuses this program ({told}); check TEMPORAL_API_KEY")
    return DriverUnavailable(f"Temporal at {address} did not answer: {told}")


def not_served(address: TemporalAddress, error: RuntimeError) -> DriverUnavailable:
    """The error for a worker that the library could not begin."""
    told = str(error)
    if "amespace" in told and "NotFound" in told:
        return DriverUnavailable(f"Temporal at {address} has no such namespace; create it, or check the URL")
    return DriverUnavailable(f"Temporal at {address} did not answer: {told:.300}")


def _tls(address: TemporalAddress) -> TLSConfig:
    authority, certificate, key = (
        None if file is None else Path(file).read_bytes()
        for file in (address.tls_ca, address.tls_cert, address.tls_key)
    )
    return TLSConfig(
        server_root_ca_cert=authority, client_cert=certificate, client_private_key=key, domain=address.tls_name
    )


def _reason(address: TemporalAddress, error: Exception, key: str | None) -> str:
    told = str(error)
    for sign, reason in _REASONS:
        if sign in told:
            return reason
    if any(sign in told for sign in _HANGS_UP):
        if not address.tls:
            return "it hangs up; perhaps it speaks TLS, then add tls=true"
        # The reason of a refused certificate is lost, if it comes after the first request was sent.
        return "it hangs up; perhaps it wants another certificate of this program, by tls_cert= and tls_key="
    shown = told if key is None else told.replace(key, "…")
    return f"{shown:.300}; check that the service runs, and the address"

"""A connection to a Temporal service. Owns making it when it is needed, and the errors of a service that is away."""

from __future__ import annotations

import os

from temporalio.client import Client
from temporalio.service import RPCError

from toolwright.drivers.temporal.address import TemporalAddress
from toolwright.errors import DriverUnavailable


class TemporalConnection:
    """The client of an address: connected at the first use, and again after a failure."""

    def __init__(self, address: TemporalAddress) -> None:
        self._address = address
        self._client: Client | None = None

    async def client(self) -> Client:
        """The client.

        Raises:
            DriverUnavailable: the service does not answer.
        """
        if self._client is None:
            address, key = self._address, os.environ.get("TEMPORAL_API_KEY") or None
            try:
                self._client = await Client.connect(
                    address.host,
                    namespace=address.namespace,
                    api_key=key,
                    tls=address.tls or key is not None,  # a key never travels in clear text
                )
            except RuntimeError as error:  # of the library: it cannot connect
                raise DriverUnavailable(f"Temporal at {address} does not answer: {error!s:.300}") from error
        return self._client


def away(address: TemporalAddress, error: RPCError) -> DriverUnavailable:
    """The error for a request that Temporal did not accept."""
    return DriverUnavailable(f"Temporal at {address} did not answer: {error.status.name}: {error.message:.300}")

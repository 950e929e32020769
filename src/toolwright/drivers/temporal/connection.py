"""A connection to a Temporal service. Owns making it when it is needed, and the errors of a service that is away."""

from __future__ import annotations

import os
from collections.abc import Sequence

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

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
            address = self._address
            try:
                self._client = await Client.connect(
                    address.host,
                    namespace=address.namespace,
                    api_key=os.environ.get("TEMPORAL_API_KEY") or None,
                    tls=address.tls,
                )
            except RuntimeError as error:  # of the library: it cannot connect
                raise DriverUnavailable(f"Temporal at {address} does not answer: {error!s:.300}") from error
        return self._client


def away(address: TemporalAddress, error: RPCError) -> DriverUnavailable:
    """The error for a request that Temporal did not accept."""
    return DriverUnavailable(f"Temporal at {address} did not answer: {error.status.name}: {error.message:.300}")


def is_one_of(error: RPCError, codes: Sequence[RPCStatusCode]) -> bool:
    """True when the service answered with one of these codes."""
    return error.status in codes

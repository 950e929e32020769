"""The scheme `temporal`. Owns refusing a URL, and a missing library, before anything is connected."""

from __future__ import annotations

from toolwright.clock import Clock
from toolwright.drivers.contract import Driver
from toolwright.drivers.temporal.address import read_address
from toolwright.extras import require_extra


class TemporalScheme:
    """`DriverScheme` of Temporal."""

    def make(self, url: str, clock: Clock) -> Driver:
        address = read_address(url)
        require_extra("temporal", "The driver 'temporal'")
        from toolwright.drivers.temporal.driver import TemporalDriver

        return TemporalDriver(address, clock)

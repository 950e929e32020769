"""Drivers: who brings runs, turns and schedules to a worker. The store stays the truth of all of them."""

from toolwright.drivers.contract import Desk, Driver, DriverScheme, HandedBack, Work, WorkKind, WorkResult
from toolwright.drivers.opening import open_driver, register_driver

__all__ = [
    "Desk",
    "Driver",
    "DriverScheme",
    "HandedBack",
    "Work",
    "WorkKind",
    "WorkResult",
    "open_driver",
    "register_driver",
]

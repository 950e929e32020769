"""The conformance suite of drivers, on each of them."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from toolwright.testing.conformance import DRIVER_CASES, DriverCase


@dataclass
class Place:
    store: str
    driver: str


@pytest.mark.promise("ENG-04")
@pytest.mark.parametrize("case", DRIVER_CASES, ids=str)
async def test_the_store_brings_work_to_its_workers(case: DriverCase, file: Path):
    await case.run(Place(str(file), "store"))


@pytest.mark.promise("ENG-04")
@pytest.mark.parametrize("case", DRIVER_CASES, ids=str)
async def test_temporal_brings_work_to_workers(case: DriverCase, file: Path, driver: str):
    await case.run(Place(str(file), driver))

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.drivers.temporal_server import TemporalServer


@pytest.fixture(scope="session")
def shared_temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalServer]:
    """One server for all tests of this process that do not kill it."""
    server = TemporalServer(tmp_path_factory.mktemp("temporal"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def driver(shared_temporal: TemporalServer) -> str:
    """The URL of Temporal, with a queue of the test's own."""
    return shared_temporal.url(uuid4().hex)

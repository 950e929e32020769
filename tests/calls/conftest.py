"""Fixtures of the tests about calls."""

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.conftest import OpenRuntime
from toolwright import Session


@pytest.fixture
def open_session(open_runtime: OpenRuntime) -> Callable[..., Coroutine[Any, Any, Session]]:
    async def open_one(*tools: Any, **options: Any) -> Session:
        return (await open_runtime(*tools, **options)).session("s")

    return open_one

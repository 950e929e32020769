"""Fixtures of the tests about web_fetch: sites on loopback, closed at the end."""

from collections.abc import AsyncIterator

import pytest

from tests.builtin.web.sites import Web


@pytest.fixture
async def web() -> AsyncIterator[Web]:
    web = Web()
    yield web
    await web.close()

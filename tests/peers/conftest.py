"""Servers that others wrote, each started once, and the models that ask them. `make test-peers` installs them."""

import re
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.peers.install import aimock_program, llama_python
from toolwright.providers import Anthropic, OpenAIChat, OpenAIResponses
from toolwright.providers.provider_model import ProviderModel

KINDS: dict[str, Callable[[str], ProviderModel]] = {
    "chat": lambda address: OpenAIChat("random", base_url=f"{address}/v1", settings={"temperature": 0}),
    "responses": lambda address: OpenAIResponses("random", base_url=f"{address}/v1", settings={"temperature": 0}),
    "messages": lambda address: Anthropic("random", base_url=address, settings={"temperature": 0}),
}


@contextmanager
def running(*command: str) -> Iterator[str]:
    """Run a server, and give the address that it prints first; it ends with the block."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            for line in server.stdout:
                if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                    yield found.group()
                    break
            else:
                pytest.fail(f"{command[0]} ended before it said its address")
        finally:
            server.kill()


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of llama.cpp's server."""
    model = tmp_path_factory.mktemp("llama") / "random.gguf"
    program = Path(__file__).with_name("llama_server.py")
    with running(str(llama_python()), str(program), str(model)) as address:
        yield address


@pytest.fixture(scope="session")
def aimock() -> Iterator[str]:
    """The address of aimock, with the answers of `answers.json`."""
    answers = Path(__file__).with_name("answers.json")
    with running(*aimock_program(), "-p", "0", "-f", str(answers)) as address:
        yield address


@pytest.fixture(params=KINDS)
async def model_at(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    """Makes the model at an address, of each protocol in turn."""
    async with AsyncExitStack() as stack:

        async def made(address: str) -> ProviderModel:
            return await stack.enter_async_context(KINDS[request.param](address))

        yield made

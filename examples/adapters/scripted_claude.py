"""A transport of the Claude Agent SDK in place of Claude Code: it makes the tool uses of a script, then ends."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import Transport


class ScriptedClaude(Transport):
    """Makes tool uses, each by its id, tool and input, one after the other; the results are in `results`."""

    def __init__(self, *uses: tuple[str, str, dict[str, Any]], server: str = "toolwright") -> None:
        self.results, self._uses, self._server = list[str](), uses, server
        self._out, self._answers = asyncio.Queue[dict[str, Any] | None](), asyncio.Queue[dict[str, Any]]()

    async def connect(self) -> None: ...
    async def end_input(self) -> None: ...

    def is_ready(self) -> bool:
        return True

    async def close(self) -> None:
        self._out.put_nowait(None)

    async def read_messages(self) -> AsyncIterator[dict[str, Any]]:
        while (message := await self._out.get()) is not None:
            yield message

    async def write(self, data: str) -> None:
        message = json.loads(data)
        if message["type"] == "control_request":
            answer = {"subtype": "success", "request_id": message["request_id"], "response": {}}
            self._out.put_nowait({"type": "control_response", "response": answer})
        elif message["type"] == "control_response":
            self._answers.put_nowait(message["response"]["response"])
        else:
            self._playing = asyncio.ensure_future(self._play())

    async def _play(self) -> None:
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "script", "version": "1"}}
        await self._mcp(0, "initialize", client)
        for number, (id, tool, given) in enumerate(self._uses, 1):
            asked = {"subtype": "can_use_tool", "tool_name": f"mcp__{self._server}__{tool}", "input": given}
            if (await self._control({**asked, "tool_use_id": id}))["behavior"] == "allow":
                params = {"name": tool, "arguments": given, "_meta": {"claudecode/toolUseId": id}}
                self.results.append((await self._mcp(number, "tools/call", params))["content"][0]["text"])
        end = {"is_error": False, "num_turns": 1, "duration_ms": 1, "duration_api_ms": 1, "session_id": "s"}
        self._out.put_nowait({"type": "result", "subtype": "success", "result": "Done.", **end})

    async def _mcp(self, id: int, method: str, params: dict[str, Any]) -> Any:
        message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        answer = await self._control({"subtype": "mcp_message", "server_name": self._server, "message": message})
        return answer["mcp_response"]["result"]

    async def _control(self, request: dict[str, Any]) -> Any:
        self._out.put_nowait({"type": "control_request", "request_id": "r", "request": request})
        return await self._answers.get()

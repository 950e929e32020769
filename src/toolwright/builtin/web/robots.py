"""robots.txt. Owns asking for it and keeping to it where the owner wants that; does not own reading its rules."""

from __future__ import annotations

import asyncio
from urllib.robotparser import RobotFileParser

from toolwright.builtin.web.request import Manners, request
from toolwright.builtin.web.response_body import read_body
from toolwright.builtin.web.urls import Target, read_url
from toolwright.tools.outcome import ToolError

_MOST_BYTES = 500 * 1024  # as RFC 9309 has it


class RobotRules:
    """The rules of the hosts that one call comes by."""

    def __init__(self, manners: Manners, wanted: bool) -> None:
        self._manners = manners
        self._wanted = wanted
        self._known: dict[str, RobotFileParser] = {}

    async def permit(self, target: Target) -> None:
        """Let a URL pass.

        Raises:
            ToolError: its host asks not to, or cannot be asked.
        """
        if not self._wanted:
            return
        site = str(target.url.copy_with(raw_path=b"/robots.txt"))
        rules = self._known.get(site)
        if rules is None:
            rules = self._known[site] = await self._ask(site)
        if not await asyncio.to_thread(rules.can_fetch, self._manners.user_agent, str(target.url)):
            raise ToolError(
                f"Host {target.host!r} asks programs not to fetch this page (robots.txt); use another source.",
                category="permission_denied",
                code="robots_refused",
            )

    async def _ask(self, site: str) -> RobotFileParser:
        rules = RobotFileParser(site)
        async with request(read_url(site), self._manners, _anything) as answer:
            if answer.status >= 500:
                rules.parse(["User-agent: *", "Disallow: /"])
            elif answer.status >= 400:
                rules.parse([])
            else:
                body = await read_body(answer.chunks, answer.headers, _MOST_BYTES)
                lines = body.content.decode("utf-8", "replace").splitlines()
                await asyncio.to_thread(rules.parse, lines)
        return rules


async def _anything(target: Target) -> None:
    """robots.txt itself needs no permission."""

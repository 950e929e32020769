"""The requirements of an app: extras, a model, a lifespan, master keys. Owns reporting missing ones to its owner,
before a model meets them."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from toolwright.app_options import AppSettings
from toolwright.calls.around import Around, described
from toolwright.calls.pools.process_pool import pickled
from toolwright.errors import MissingRequirement
from toolwright.extras import EXTRAS, how_to_install, missing_libraries
from toolwright.log_fields import log_fields
from toolwright.session.secrets.master_keys import VARIABLE, EnvironmentKeys, KeyFile, KeyProvider
from toolwright.stores.contracts.sessions import SecretStore
from toolwright.tools.outcome import told
from toolwright.tools.tool import Tool

log = logging.getLogger("toolwright")
_LOOKED_AT = 200
"""How many secrets of a store are looked at for their master keys."""


def require_met(app: AppSettings, tools: Iterable[Tool]) -> None:
    """Refuse tools that could not work in this app, in this process.

    Raises:
        MissingRequirement: a library is not installed, the app has no model or no lifespan for them, or a context
            manager around their calls cannot be sent to their child process.
    """
    needing: dict[str, list[str]] = {}
    for tool in tools:
        if app.around and tool.mode == "process":
            _require_sendable(app.around, tool.name)
        for need in tool.needs:
            needing.setdefault(need, []).append(tool.name)
    if not needing:
        return
    if app.model is None and "model" in needing:
        raise MissingRequirement(
            f"{_named(needing['model'])} a model, and the app has none; give it one: App(model=...)"
        )
    if app.lifespan is None and "deps" in needing:
        raise MissingRequirement(
            f"{_named(needing['deps'])} the dependencies of the app (ctx.deps), and it has no lifespan that gives "
            "them; give it one: App(lifespan=...)"
        )
    missing = {need: libraries for need in needing if need in EXTRAS and (libraries := missing_libraries(need))}
    if missing:
        names = sorted({name for need in missing for name in needing[need]})
        shown = ", ".join(repr(library) for need in sorted(missing) for library in missing[need])
        raise MissingRequirement(
            f"{_named(names)} libraries that are not installed ({shown}); run: {how_to_install(missing)}, or leave "
            "these tools out"
        )


def _require_sendable(around: Iterable[Around], tool: str) -> None:
    for factory in around:
        problem = pickled(factory)
        if isinstance(problem, Exception):
            raise MissingRequirement(
                f"Tool {tool!r} runs in a child process, and {described(factory)} in App(around=...) cannot be sent "
                f"there ({told(problem)}); make it a function of a module, or drop the tool's isolation"
            )


def _named(names: list[str]) -> str:
    shown = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"Tool {shown} needs" if len(names) == 1 else f"The tools {shown} need"


async def require_readable_secrets(store: SecretStore, keys: KeyProvider) -> None:
    """Refuse a store whose secrets could neither be passed to tools nor redacted here.

    Raises:
        MissingRequirement: the extra `secrets` is not installed, or no master key of its secrets is known.
        SecretsError: the keys in the environment are not usable.
    """
    if isinstance(keys, EnvironmentKeys):
        keys.current()
    rows = await store.secrets_after(("", ""), _LOOKED_AT)
    if not rows:
        return
    if libraries := missing_libraries("secrets"):
        raise MissingRequirement(
            f"The store has secrets, and libraries for them are not installed ({', '.join(map(repr, libraries))}); "
            f"run: {how_to_install(['secrets'])}"
        )
    masters = {row.master for _, _, row in rows}
    unknown = sorted(master for master in masters if keys.key(master) is None)
    if len(unknown) == len(masters):
        raise MissingRequirement(
            f"The secrets of the store are sealed with the master key {unknown[0]!r:.100}, which {_not_here(keys)}set "
            f"{VARIABLE} as in the program that wrote them, or give App(master_key=...)"
        )
    if unknown:
        log.warning(
            "Some secrets of the store are sealed with master keys that are not known here: %s",
            unknown,
            extra=log_fields("secrets.unknown_keys"),
        )


def _not_here(keys: KeyProvider) -> str:
    """Where a master key was looked for, and what is to be done about that place."""
    if not isinstance(keys, KeyFile):
        return "is not known here; "
    path = str(keys.path)
    if keys.path.exists():
        return f"is not in the key file {path!r}; put the right file back from a copy, or "
    return f"is not known here, for there is no key file {path!r}; put that file back from a copy, or "

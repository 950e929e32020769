"""Explains faults of the server of a store. Owns the reasons and their remedies; others meet the fault."""

from __future__ import annotations

import psycopg
from psycopg import errors

from toolwright.errors import StoreDamaged, StoreError, StoreUnavailable

_REASONS: tuple[tuple[type[psycopg.Error], str], ...] = (
    (errors.InvalidPassword, "the password is wrong; check the URL, PGPASSWORD or the password file"),
    (errors.InvalidAuthorizationSpecification, "the server does not let this user in; check the user and pg_hba.conf"),
    (errors.InvalidCatalogName, "there is no such database; create it, or check the name"),
    (errors.TooManyConnections, "the server has no connection left; raise max_connections, or use fewer processes"),
    (errors.CannotConnectNow, "the server starts or ends just now; wait"),
    (errors.DiskFull, "the disk of the server is full; free some space"),
    (errors.OutOfMemory, "the server has no memory left; give it more"),
    (errors.ReadOnlySqlTransaction, "the server can only be read, as a replica; give the address of the primary"),
    (errors.LockNotAvailable, "another program holds it; wait, or stop that program"),
    (errors.InsufficientPrivilege, "this user may not do that ({}); grant it, as docs/postgres.md says"),
    (errors.UndefinedTable, "a table is missing ({}); check the schema, or run `toolwright db migrate`"),
    (errors.ProgramLimitExceeded, "a value is larger than the server can hold ({}); let tools return less"),
    (errors.DataCorrupted, "it is damaged ({}); restore it from a backup"),
    (errors.IndexCorrupted, "it is damaged ({}); run REINDEX, or restore it from a backup"),
)
# The server sends no code for these before a connection stands.
_WORDS: tuple[tuple[str, str], ...] = (
    ("password authentication failed", _REASONS[0][1]),
    ("no password supplied", "the server wants a password; put it into PGPASSWORD or the password file"),
    ("no pg_hba.conf entry", _REASONS[1][1]),
    ("role ", _REASONS[1][1]),
    ("database ", _REASONS[2][1]),
    ("too many clients", _REASONS[3][1]),
    ("too many connections", _REASONS[3][1]),
    ("remaining connection slots", _REASONS[3][1]),
    ("session is read-only", _REASONS[7][1]),
)
_PASSING = (errors.TooManyConnections, errors.CannotConnectNow, errors.LockNotAvailable)
_PASSING_WORDS = ("too many", "remaining connection slots", "starting up", "shutting down", "session is read-only")
_REFUSING_WORDS = ("password", "pg_hba.conf", "role ", "does not exist", "certificate", "SSL", "GSSAPI")


def is_lost(error: BaseException) -> bool:
    """True when the connection ended, and it is not known whether the last statement was carried out."""
    if isinstance(error, (errors.ReadOnlySqlTransaction, errors.IdleInTransactionSessionTimeout)):
        return True
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and (
        getattr(error, "sqlstate", None) is None or (error.sqlstate or "").startswith(("08", "57P"))
    )


def cannot_connect(shown: str, error: psycopg.Error) -> StoreError:
    """The error of a store whose server did not let this program in."""
    told = str(error).strip()
    passing = isinstance(error, _PASSING) or any(words in told for words in _PASSING_WORDS)
    if not passing and (
        isinstance(error, (errors.InvalidAuthorizationSpecification, errors.InvalidCatalogName))
        or (isinstance(error, psycopg.OperationalError) and any(words in told for words in _REFUSING_WORDS))
    ):
        return StoreError(f"The store {shown!r} cannot be opened: {reason(error)}")
    return StoreUnavailable(f"The store {shown!r} cannot be reached: {reason(error)}")


def store_error(shown: str, error: psycopg.Error) -> StoreError:
    """The error of a store for one of the server, which wrote nothing."""
    told = f"The store {shown!r} could not write: {reason(error)}"
    if isinstance(error, (errors.DataCorrupted, errors.IndexCorrupted)):
        return StoreDamaged(told)
    return StoreUnavailable(told) if is_lost(error) or isinstance(error, _PASSING) else StoreError(told)


def reason(error: psycopg.Error) -> str:
    """The fault, and the remedy."""
    first = (getattr(error.diag, "message_primary", None) or str(error)).strip().splitlines()
    told = first[0] if first else type(error).__name__
    for kind, words in _REASONS:
        if isinstance(error, kind):
            return words.format(told)
    whole = str(error)
    for sign, words in _WORDS:
        if sign in whole and isinstance(error, psycopg.OperationalError):
            return words.format(told)
    if isinstance(error, psycopg.OperationalError):
        return f"{told}; check that the server runs, and the address"
    return told

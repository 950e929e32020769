"""Explains faults of the server of a store. Owns the reasons and their remedies; others meet the fault."""

from __future__ import annotations

import re

import psycopg
from psycopg import errors

from toolwright.errors import StoreDamaged, StoreError, StoreUnavailable

_SEVERAL = "Multiple connection attempts failed."
_ATTEMPT = re.compile(r"^- host: (.*?, port: .*?), hostaddr: .*?: ((?:(?!\n- host: ).)*)", re.M | re.S)
_READ_ONLY = "the server can only be read, as a replica or by a setting; give the address of the primary, or wait"
_NO_USER = "the server does not let this user in ({}); check the user and pg_hba.conf"
_NO_DATABASE = "there is no such database; create it, or check the name"
_LIMIT = "no connection is left ({}); raise the limit (max_connections, or CONNECTION LIMIT), or use fewer processes"
_WAIT = "the server starts, recovers or ends just now ({}); wait"
_WRONG_SERVER = "what answers there is not PostgreSQL, or not the TLS that was asked for ({}); check host and port"
POOLER = (
    "a pooler stands before the server, and changes the session with each transaction; let it keep one for each client "
    "(PgBouncer: pool_mode = session), or connect to the server"
)
_REASONS: tuple[tuple[type[psycopg.Error], str], ...] = (
    (errors.TooManyConnections, _LIMIT),
    (errors.CannotConnectNow, _WAIT),
    (errors.DiskFull, "the disk of the server is full; free some space"),
    (errors.OutOfMemory, "the server has no memory left; give it more"),
    (errors.ConfigurationLimitExceeded, "a limit of the server is reached ({}); raise it"),
    (errors.ReadOnlySqlTransaction, _READ_ONLY),
    (errors.LockNotAvailable, "another program holds it; wait, or stop that program"),
    (errors.QueryCanceled, "the server was told to cancel the statement ({}); repeat it"),
    (errors.InsufficientPrivilege, "this user may not do that ({}); grant it, as docs/postgres.md says"),
    (errors.UndefinedTable, "a table is missing ({}); restore it from a backup, or check the schema"),
    (errors.ReservedName, "the schema cannot have this name ({}); name another by ?schema=…"),
    (errors.ProgramLimitExceeded, "a value is larger than the server can hold ({}); let tools return less"),
    (errors.DataCorrupted, "it is damaged ({}); restore it from a backup"),
    (errors.IndexCorrupted, "it is damaged ({}); run REINDEX, or restore it from a backup"),
)
# Before a connection stands there is no code, only words. Those that pass by themselves stand first: of several hosts
# one may only be on its way.
_PASSING_WORDS: tuple[tuple[str, str], ...] = (
    ("session is read-only", _READ_ONLY),
    ("too many clients", _LIMIT),
    ("too many connections", _LIMIT),
    ("remaining connection slots", _LIMIT),
    ("no more connections allowed", _LIMIT),  # PgBouncer
    ("the database system is", _WAIT),
)
_REFUSING_WORDS: tuple[tuple[str, str], ...] = (
    ("password authentication failed", "the password is wrong; check the URL, PGPASSWORD or the password file"),
    ("no password supplied", "the server wants a password; put it into PGPASSWORD or the password file"),
    ("pg_hba.conf", _NO_USER),
    ("certificate authentication failed", _NO_USER),
    ("connection requires a valid client certificate", "the server wants a client certificate; set sslcert and sslkey"),
    ("alert certificate required", "the server wants a client certificate; set sslcert and sslkey"),
    ("alert unknown ca", "the server does not know the client certificate; set sslcert to one of its authority"),
    ("certificate verify failed", "the certificate of the server is not one of sslrootcert ({}); check both"),
    ("does not match host name", "the certificate of the server is another host's ({}); check the host"),
    ("root certificate file", "sslrootcert cannot be read ({}); name the file of the authority"),
    ("private key file", "sslkey cannot be used ({}); check the file, its permissions and sslpassword"),
    ("certificate file", "sslcert cannot be used ({}); check the file"),
    ("does not support SSL", "the server has no TLS, and the URL wants it; turn it on there, or change sslmode"),
    ("response to SSL negotiation", _WRONG_SERVER),
    ("expected authentication request", _WRONG_SERVER),
    ("wrong version number", _WRONG_SERVER),
    ("permission denied for database", "this user may not connect to the database; grant CONNECT on it"),
    ("not currently accepting connections", "the database takes no connections; allow them, or name another"),
    ("is not permitted to log in", _NO_USER),
    ("connection is bad: invalid", "{}; correct the URL"),
    ("bad value for connect_timeout", "{}; correct the URL"),
    ("conversion between", "the encoding of its database cannot be used ({}); create one with ENCODING 'UTF8'"),
    ("unrecognized configuration parameter", "{}; correct the options of the URL"),
    ("transaction blocks not allowed in statement pooling mode", POOLER),
    ("unsupported startup parameter", "the pooler does not pass an option on ({}); leave that out of the URL"),
)


def is_lost(error: psycopg.Error) -> bool:
    """True when it may not be known whether the last statement was carried out, and another connection may help: this
    one ended, or its server can only be read.
    """
    if isinstance(error, (errors.ReadOnlySqlTransaction, errors.IdleInTransactionSessionTimeout)):
        return True
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and (
        getattr(error, "sqlstate", None) is None or (error.sqlstate or "").startswith(("08", "57P"))
    )


def cannot_open(shown: str, error: psycopg.Error) -> StoreError:
    """The error of a store that cannot be opened or read: its server is away, or does not let this program in."""
    words = _explain(error)
    if isinstance(error, psycopg.OperationalError) and not all(_refuses(told) for _, told in _attempts(error)):
        return StoreUnavailable(f"The store {shown!r} cannot be {'opened' if error.sqlstate else 'reached'}: {words}")
    return StoreError(f"The store {shown!r} cannot be opened: {words}")


def store_error(shown: str, error: psycopg.Error) -> StoreError:
    """The error of a store for one of the server, which wrote nothing."""
    told = f"The store {shown!r} could not write: {_explain(error)}"
    if isinstance(error, (errors.DataCorrupted, errors.IndexCorrupted)):
        return StoreDamaged(told)
    passes = is_lost(error) or isinstance(error, (errors.TooManyConnections, errors.LockNotAvailable))
    return StoreUnavailable(told) if passes else StoreError(told)


def _attempts(error: psycopg.Error) -> list[tuple[str, str]]:
    """The hosts that were tried, and what came of it."""
    first, _, every = str(error).strip().partition(_SEVERAL)
    return _ATTEMPT.findall(every) or [("", first)]


def _refuses(told: str) -> bool:
    """True when the server, or libpq, would refuse this program again."""
    if any(sign in told for sign, _ in _PASSING_WORDS):
        return False
    return _names_nothing(told) is not None or any(sign in told for sign, _ in _REFUSING_WORDS)


def _names_nothing(told: str) -> str | None:
    """What to do about a role or a database that is not there; None if it is not about that."""
    if "does not exist" not in told:
        return None
    return _NO_DATABASE if "database " in told else _NO_USER if "role " in told else None


def _explain(error: psycopg.Error) -> str:
    """The fault, and the remedy."""
    if isinstance(error, errors.ProgramLimitExceeded) and "index row" in (error.diag.message_primary or ""):
        return (
            f"an id, a name or a path is longer than an index holds ({error.diag.message_primary}); use a shorter one"
        )
    for kind, words in _REASONS:
        if isinstance(error, kind):
            return words.format(error.diag.message_primary)
    attempts = _attempts(error)
    if len({host for host, _ in attempts}) > 1:
        each = ", ".join(f"{host}: {_first_line(told)}" for host, told in attempts)
        return f"no host can be used ({each}); check that the primary runs, and the addresses"
    told = error.diag.message_primary or attempts[-1][1]
    for sign, words in _PASSING_WORDS + _REFUSING_WORDS:
        if sign in told:
            return words.format(_first_line(next(line for line in told.splitlines() if sign in line)))
    if nothing := _names_nothing(told):
        return nothing.format(_first_line(told))
    first = (told.splitlines() or [type(error).__name__])[0].removeprefix("connection failed: ")
    return f"{first}; {'check that the server runs, and the address' if error.sqlstate is None else 'correct that'}"


def _first_line(told: str) -> str:
    """The first line of what libpq tells, without the address, which is known."""
    line = (told.splitlines() or [""])[0].rpartition(" failed: ")[2]
    return line.removeprefix("connection is bad: ").removeprefix("FATAL:").strip()

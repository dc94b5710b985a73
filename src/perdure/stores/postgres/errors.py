"""Every error of the driver as one of ours, in one place, by SQLSTATE.

A code is looked up whole, then by its class (its first two characters); the table has every class that
PostgreSQL lists, so that nothing of the driver's ever reaches a caller.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from perdure.model.errors import (
    SchemaMismatch,
    StoreBusy,
    StoreDamaged,
    StoreDenied,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)

Named = tuple[type[StoreError], str]

_AWAY: Named = (StoreUnavailable, "the same call may succeed later")
_NOBODY: Named = (
    StoreUnavailable,
    "check that the server runs and that host and port in the URL are right",
)
_AGAIN: Named = (StoreBusy, "others were in the way; try again")
_BAD: Named = (StoreError, "please report it")
_RIGHTS: Named = (StoreDenied, "grant the role its rights: see docs/postgres.md")
_SCHEMA: Named = (
    SchemaMismatch,
    "the tables are not those of this version; see: perdure db status",
)
_DAMAGED: Named = (
    StoreDamaged,
    "the server reports a damaged table; check its log and restore a backup",
)
_LIMIT: Named = (StoreUnavailable, "the server is short of a resource; try again later")

BY_CODE: dict[str, Named] = {
    "3D000": (StoreUnavailable, "make the database first: createdb"),
    "3F000": _SCHEMA,
    "25006": (
        StoreReadOnly,
        "the server is a standby, or set to read only; connect to the primary",
    ),
    "25P02": (
        StoreError,
        "an earlier statement of your transaction has failed: roll it back first",
    ),
    "25P03": _AWAY,  # idle in transaction for too long: the connection is gone
    "28P01": (StoreDenied, "check the user and the password in the URL"),
    "40001": _AGAIN,
    "40P01": _AGAIN,
    "42501": _RIGHTS,
    "42P01": _SCHEMA,
    "42P05": _AWAY,  # a prepared statement of another client: a pooler stands between
    "42703": _SCHEMA,
    "53100": (StoreFull, "free some space; nothing that was accepted is lost"),
    "53300": (StoreBusy, "the server has too many connections; raise max_connections or use fewer"),
    "55P03": _AGAIN,  # lock_timeout
    "57014": _AGAIN,  # statement_timeout
    "26000": _AWAY,  # a prepared statement that the pooler's other server does not have
    "XX001": _DAMAGED,
    "XX002": _DAMAGED,
}

BY_CLASS: dict[str, Named] = {
    "00": _BAD, "01": _BAD, "02": _BAD, "03": _BAD,
    "08": _AWAY, "09": _BAD, "0A": _BAD, "0B": _BAD, "0F": _BAD, "0L": _BAD, "0P": _RIGHTS,
    "0Z": _BAD, "10": _BAD, "20": _BAD, "21": _BAD, "22": _BAD, "23": _BAD, "24": _BAD, "25": _BAD,
    "26": _AWAY, "27": _BAD, "28": (StoreDenied, "check the user and pg_hba.conf"), "2B": _BAD,
    "2D": _BAD, "2F": _BAD, "34": _BAD, "38": _BAD, "39": _BAD, "3B": _BAD,
    "3D": _AWAY, "3F": _SCHEMA, "40": _AGAIN, "42": _SCHEMA, "44": _BAD, "53": _LIMIT, "54": _BAD,
    "55": _AGAIN, "57": _AWAY, "58": (StoreUnavailable, "the server reports an error of its disk"),
    "72": _BAD, "F0": (StoreUnavailable, "mend the server's configuration"), "HV": _BAD, "P0": _BAD,
    "XX": (StoreUnavailable, "the server reports a fault of its own; check its log"),
}  # fmt: skip

# What is wrong with one row, not with the store: its neighbours can be written without it.
ROW_CLASSES = ("22", "23", "54")

# The server has rolled all of it back, and says so: the same may be sent again at once.
ROLLED_BACK = ("40001", "40P01")

# A statement that we had prepared is not there, or is another client's: a pooler stands between.
POOLED = ("26000", "42P05")


@contextmanager
def translate_errors(shown_url: str) -> Iterator[None]:
    """Every driver error as one of ours."""
    try:
        yield
    except psycopg.Error as error:
        raise error_of(error, shown_url) from error


def error_of(error: psycopg.Error, shown_url: str) -> StoreError:
    """The error of ours that this one is."""
    kind, advice = _look_up(error)
    said = str(error).partition("CONTEXT:")[0].splitlines()
    text = (
        "; ".join(filter(None, (" ".join(line.split()) for line in said))) or type(error).__name__
    )
    found = kind(f"store {shown_url}: {text[:500]}; {advice}")
    if isinstance(found, StoreUnavailable):
        found.may_pass = found.may_pass or advice in (_AWAY[1], _NOBODY[1], _LIMIT[1])
    return found


def _look_up(error: psycopg.Error) -> Named:
    away = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if error.sqlstate is None and any(words in str(error) for words in _OF_THE_URL):
        return StoreUnavailable, "check the parameters after the ? in the URL"
    code = error.sqlstate or (_code_by_words(str(error)) if away else None)
    if code is not None:
        return BY_CODE.get(code) or BY_CLASS.get(code[:2], _BAD)
    return _NOBODY if away else _BAD


def _code_by_words(text: str) -> str | None:
    return next((code for words, code in _BY_WORDS if words in text), None)


_OF_THE_URL = (
    "invalid sslmode value",
    "invalid integer value",
    "invalid connection option",
    "does not support SSL",
    "certificate",
    "unrecognized configuration parameter",
    "bad value for",
)

# libpq gives no SQLSTATE for what goes wrong before the connection stands. The first match counts.
_BY_WORDS = (
    ("password authentication failed", "28P01"),
    ("no password supplied", "28P01"),
    ("authentication failed", "28000"),
    ("pg_hba.conf", "28000"),
    ("not permitted to log in", "28000"),
    ("permission denied", "42501"),
    ("too many c", "53300"),  # clients, connections for role, connections for database
    ("remaining connection slots", "53300"),
    ('role "', "28000"),
    ("does not exist", "3D000"),
    ("starting up", "57P03"),
    ("shutting down", "57P01"),
    ("recovery mode", "57P03"),
    ("not yet accepting connections", "57P03"),
    ("not accepting connections", "57P03"),
    ("not currently accepting connections", "57P03"),
)

"""PostgreSQL by SQLSTATE; and its drivers' classes where the server had no word in it.

``OperationalError`` alone means nothing: it covers a deadlock, a wrong password and a full disk.
"""

import re

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence
from perdure.rules.matchers.family import Family, Found, each, message_of

# Exact states first, then classes of states by their first two characters.
STATES: dict[str, Kind] = {
    "08007": Kind.AMBIGUOUS,  # transaction resolution unknown
    "40003": Kind.AMBIGUOUS,  # statement completion unknown
    "40002": Kind.INVALID_REQUEST,  # a constraint, found at commit
    "25006": Kind.STORAGE_TRANSIENT,  # read only: the primary has moved
    "25P03": Kind.STORAGE_TRANSIENT,  # idle in transaction for too long
    "55P03": Kind.STORAGE_TRANSIENT,  # lock not available
    "55006": Kind.STORAGE_TRANSIENT,  # object in use
    "57P01": Kind.STORAGE_TRANSIENT,
    "57P02": Kind.STORAGE_TRANSIENT,
    "57P03": Kind.STORAGE_TRANSIENT,
    "57P05": Kind.STORAGE_TRANSIENT,
    "57P04": Kind.CONFIG_MISSING,  # the database was dropped
    "3D000": Kind.CONFIG_MISSING,  # there is no such database
    "42501": Kind.AUTH,  # insufficient privilege
    "58P01": Kind.CONFIG_MISSING,  # a file of the server is missing
    "58P02": Kind.CONFIG_MISSING,
    "72000": Kind.STORAGE_TRANSIENT,  # snapshot too old
    "XX000": Kind.UPSTREAM_ERROR,
    "XX001": Kind.INTERNAL,  # corrupted: no retry mends it
    "XX002": Kind.INTERNAL,
}
STATE_CLASSES: dict[str, Kind] = {
    "08": Kind.STORAGE_TRANSIENT,  # connection
    "40": Kind.STORAGE_TRANSIENT,  # the transaction was rolled back
    "53": Kind.STORAGE_TRANSIENT,  # out of connections, memory or disk
    "58": Kind.STORAGE_TRANSIENT,  # system error
    "0A": Kind.INTERNAL,  # feature not supported
    "0L": Kind.AUTH,
    "0P": Kind.AUTH,
    "21": Kind.INVALID_REQUEST,
    "22": Kind.INVALID_REQUEST,  # what was to be stored cannot be
    "23": Kind.INVALID_REQUEST,  # a constraint
    "25": Kind.INTERNAL,  # wrong state of the transaction
    "26": Kind.INTERNAL,
    "28": Kind.AUTH,
    "34": Kind.INTERNAL,
    "3F": Kind.CONFIG_MISSING,
    "42": Kind.INTERNAL,  # wrong SQL
    "44": Kind.INVALID_REQUEST,
    "54": Kind.TOO_LARGE,  # more than the server's limits allow
    "55": Kind.INTERNAL,
    "P0": Kind.INVALID_REQUEST,  # raised by a function of ours
}

_POOLER = re.compile(
    r"pgbouncer|pooler|query_wait_timeout|server_login_retry|server conn crashed|no more connections"
    r"|server login|too many clients|client_login_timeout"
)
_CANCELLED = re.compile(r"due to user request|cancell?ed by user")
_LOST = re.compile(
    r"server closed the connection|connection is lost|connection was closed|consuming input failed"
    r"|ssl connection has been closed|could not (?:receive|send) data|terminating connection"
    r"|eof detected|connection not open|connection reset|broken pipe|sending (?:query|prepared)"
)
_NO_ENTRY = re.compile(
    r"password authentication failed|no pg_hba\.conf entry|authentication failed for user"
    r"|no password supplied|role \S{1,80} does not exist|permission denied for database"
)
_TOLD = (
    ("not let in", Kind.AUTH, _NO_ENTRY),
    ("no such database", Kind.CONFIG_MISSING, re.compile(r"database \S{1,80} does not exist")),
    ("connection lost", Kind.AMBIGUOUS, _LOST),
)
_DRIVERS = ("psycopg", "psycopg2", "pg8000", "sqlalchemy", "django")


def sqlstate(evidence: Evidence) -> Found | None:
    """The kind of a SQLSTATE."""
    state = evidence.sqlstate
    if state is None:
        return None
    kind = _by_text(state, evidence) or STATES.get(state) or STATE_CLASSES.get(state[:2])
    return None if kind is None else (kind, f"sqlstate {state}")


def _by_text(state: str, evidence: Evidence) -> Kind | None:
    """The states whose meaning depends on who speaks."""
    if state == "57014":  # cancelled by somebody, or by the statement's own time limit
        return Kind.CANCELLED if _CANCELLED.search(message_of(evidence)) else Kind.TIMEOUT
    if state == "08P01":  # a broken protocol is a defect; PgBouncer says so for all that it refuses
        return Kind.STORAGE_TRANSIENT if _POOLER.search(message_of(evidence)) else Kind.INTERNAL
    return None


def without_state(evidence: Evidence) -> Found | None:
    """What only the driver's text tells: libpq gives no state for a connection lost or refused.

    After a connection is lost, a commit that was sent may have happened.
    """
    if evidence.sqlstate is not None:
        return None
    text = message_of(evidence)
    return next(((kind, f"postgres, {why}") for why, kind, one in _TOLD if one.search(text)), None)


_DBAPI = {
    "OperationalError": Kind.STORAGE_TRANSIENT,
    "InterfaceError": Kind.STORAGE_TRANSIENT,
    "DataError": Kind.INVALID_REQUEST,
    "IntegrityError": Kind.INVALID_REQUEST,
    "ProgrammingError": Kind.INTERNAL,
    "NotSupportedError": Kind.INTERNAL,
}

# The classes of psycopg that one is likely to name, by the state that each stands for.
CLASS_STATES: dict[str, str] = {
    "SerializationFailure": "40001",
    "DeadlockDetected": "40P01",
    "StatementCompletionUnknown": "40003",
    "LockNotAvailable": "55P03",
    "ConnectionException": "08000",
    "SqlclientUnableToEstablishSqlconnection": "08001",
    "ConnectionDoesNotExist": "08003",
    "SqlserverRejectedEstablishmentOfSqlconnection": "08004",
    "ConnectionFailure": "08006",
    "TransactionResolutionUnknown": "08007",
    "ProtocolViolation": "08P01",
    "AdminShutdown": "57P01",
    "CrashShutdown": "57P02",
    "CannotConnectNow": "57P03",
    "DatabaseDropped": "57P04",
    "IdleSessionTimeout": "57P05",
    "QueryCanceled": "57014",
    "ReadOnlySqlTransaction": "25006",
    "InFailedSqlTransaction": "25P02",
    "InsufficientResources": "53000",
    "DiskFull": "53100",
    "OutOfMemory": "53200",
    "TooManyConnections": "53300",
    "ConfigurationLimitExceeded": "53400",
    "IoError": "58030",
    "StatementTooComplex": "54001",
    "UniqueViolation": "23505",
    "ForeignKeyViolation": "23503",
    "NotNullViolation": "23502",
    "CheckViolation": "23514",
    "InvalidTextRepresentation": "22P02",
    "NumericValueOutOfRange": "22003",
    "InvalidPassword": "28P01",
    "InvalidAuthorizationSpecification": "28000",
    "InsufficientPrivilege": "42501",
    "SyntaxError": "42601",
    "UndefinedTable": "42P01",
    "UndefinedColumn": "42703",
    "InvalidCatalogName": "3D000",
    "FeatureNotSupported": "0A000",
    "DataCorrupted": "XX001",
    "IndexCorrupted": "XX002",
}

FAMILY = Family(
    name="postgres",
    roots=frozenset({"psycopg", "psycopg2", "psycopg_pool", "asyncpg", "pg8000", "sqlalchemy"}),
    class_traps={f"{driver}.OperationalError": without_state for driver in _DRIVERS},
    late_classes={
        **each(_DRIVERS, _DBAPI),
        "psycopg.PipelineAborted": Kind.INTERNAL,
        "psycopg_pool.PoolTimeout": Kind.RESOURCE_EXHAUSTED,
        "psycopg_pool.TooManyRequests": Kind.RESOURCE_EXHAUSTED,
        "psycopg_pool.PoolClosed": Kind.INTERNAL,
        "sqlalchemy.TimeoutError": Kind.RESOURCE_EXHAUSTED,
        "asyncpg.InterfaceError": Kind.STORAGE_TRANSIENT,
    },
    parents={
        "psycopg.OperationalError": "psycopg.DatabaseError",
        "psycopg.DataError": "psycopg.DatabaseError",
        "psycopg.IntegrityError": "psycopg.DatabaseError",
        "psycopg.ProgrammingError": "psycopg.DatabaseError",
        "psycopg.NotSupportedError": "psycopg.DatabaseError",
        "psycopg.InternalError": "psycopg.DatabaseError",
        "psycopg.DatabaseError": "psycopg.Error",
        "psycopg.InterfaceError": "psycopg.Error",
        "psycopg.ConnectionTimeout": "psycopg.OperationalError",
        "psycopg_pool.PoolTimeout": "psycopg.OperationalError",
        "psycopg_pool.TooManyRequests": "psycopg.OperationalError",
        "psycopg_pool.PoolClosed": "psycopg.OperationalError",
    },
)

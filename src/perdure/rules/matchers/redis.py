"""Redis, and Valkey by the same names.

Its client's classes mislead: a wrong password, a missing right and an empty pool all descend from
``ConnectionError``. The nearest class is asked first.
"""

from perdure.model.kinds import Kind
from perdure.model.outcomes import Evidence
from perdure.rules.matchers.family import Family, Found, each

_ROOTS = ("redis", "valkey")

# The first word of an answer that the client has no class for.
_WORDS: dict[str, Kind] = {
    "MISCONF": Kind.STORAGE_TRANSIENT,  # cannot write its snapshots
    "NOREPLICAS": Kind.STORAGE_TRANSIENT,
    "BUSY": Kind.OVERLOADED,  # a script runs
    "UNKILLABLE": Kind.OVERLOADED,
    "NOQUORUM": Kind.STORAGE_TRANSIENT,
    "UNBLOCKED": Kind.STORAGE_TRANSIENT,
    "WRONGTYPE": Kind.INTERNAL,
}


def first_word(evidence: Evidence) -> Found | None:
    """An answer that the client does not know by class."""
    word = evidence.message.partition(" ")[0]
    kind = _WORDS.get(word)
    return None if kind is None else (kind, f"redis answer {word}")


_CLASSES = {
    "ConnectionError": Kind.STORAGE_TRANSIENT,
    "BusyLoadingError": Kind.STORAGE_TRANSIENT,
    "TryAgainError": Kind.STORAGE_TRANSIENT,
    "ClusterDownError": Kind.STORAGE_TRANSIENT,
    "MasterDownError": Kind.STORAGE_TRANSIENT,
    "ReadOnlyError": Kind.STORAGE_TRANSIENT,
    "NoScriptError": Kind.STORAGE_TRANSIENT,
    "WatchError": Kind.STORAGE_TRANSIENT,
    "AskError": Kind.STORAGE_TRANSIENT,
    "MovedError": Kind.STORAGE_TRANSIENT,
    "ClusterError": Kind.STORAGE_TRANSIENT,
    "RedisClusterException": Kind.STORAGE_TRANSIENT,
    "LockError": Kind.STORAGE_TRANSIENT,
    "TimeoutError": Kind.TIMEOUT,
    "InvalidResponse": Kind.AMBIGUOUS,
    "AuthenticationError": Kind.AUTH,
    "AuthorizationError": Kind.AUTH,
    "AuthenticationWrongNumberOfArgsError": Kind.AUTH,
    "ExternalAuthProviderError": Kind.AUTH,
    "NoPermissionError": Kind.AUTH,
    "MaxConnectionsError": Kind.RESOURCE_EXHAUSTED,
    "OutOfMemoryError": Kind.OVERLOADED,
    "LockNotOwnedError": Kind.CANCELLED,  # the lock is lost: somebody else has the work
    "ClusterCrossSlotError": Kind.INTERNAL,
    "CrossSlotTransactionError": Kind.INTERNAL,
    "ExecAbortError": Kind.INVALID_REQUEST,
    "ResponseError": Kind.INVALID_REQUEST,
    "DataError": Kind.INVALID_REQUEST,
    "PubSubError": Kind.INTERNAL,
}
_PARENTS = {
    "ConnectionError": "RedisError",
    "TimeoutError": "RedisError",
    "ResponseError": "RedisError",
    "DataError": "RedisError",
    "WatchError": "RedisError",
    "LockError": "RedisError",
    "ClusterError": "RedisError",
    "LockNotOwnedError": "LockError",
    "BusyLoadingError": "ConnectionError",
    "AuthenticationError": "ConnectionError",
    "AuthorizationError": "ConnectionError",
    "ExternalAuthProviderError": "ConnectionError",
    "MaxConnectionsError": "ConnectionError",
    "NoPermissionError": "ResponseError",
    "OutOfMemoryError": "ResponseError",
    "ReadOnlyError": "ResponseError",
    "NoScriptError": "ResponseError",
    "TryAgainError": "ResponseError",
    "ExecAbortError": "ResponseError",
    "ClusterDownError": "ClusterError",
    "MasterDownError": "ClusterDownError",
}

FAMILY = Family(
    name="redis",
    roots=frozenset(_ROOTS),
    class_traps={f"{root}.ResponseError": first_word for root in _ROOTS},
    classes=each(_ROOTS, _CLASSES),
    parents={f"redis.{name}": f"redis.{parent}" for name, parent in _PARENTS.items()},
)

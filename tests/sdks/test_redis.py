"""The Redis client's own exceptions, from a server that speaks its protocol by script."""

import pytest

from tests.sdks.kit import PATIENT_S, TIMEOUT_S, Sdk, seen
from tests.sdks.wires import redis_talk, serving

redis = Sdk("redis")
retry = Sdk("redis.retry")
backoff = Sdk("redis.backoff")


def ask(port, timeout_s=PATIENT_S, **more):
    never = retry.Retry(backoff.NoBackoff(), 0)
    client = redis.Redis(
        "127.0.0.1", port, socket_timeout=timeout_s, retry=never, protocol=2, **more
    )
    try:
        return client.get("key")
    finally:
        client.close()


ANSWERS = [
    ("LOADING Redis is loading the dataset in memory", "storage_transient", "BusyLoadingError"),
    ("READONLY You can't write against a read only replica.", "storage_transient", "ReadOnlyError"),
    ("MASTERDOWN Link with MASTER is down", "storage_transient", "MasterDownError"),
    ("CLUSTERDOWN The cluster is down", "storage_transient", "ClusterDownError"),
    ("TRYAGAIN Multiple keys request during rehashing of slot", "storage_transient", "TryAgainError"),
    ("NOSCRIPT No matching script.", "storage_transient", "NoScriptError"),
    ("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist", "storage_transient", "ResponseError"),
    ("ERR max number of clients reached", "storage_transient", "ConnectionError"),
    ("OOM command not allowed when used memory > 'maxmemory'.", "overloaded", "OutOfMemoryError"),
    ("BUSY Redis is busy running a script.", "overloaded", "ResponseError"),
    ("NOAUTH Authentication required.", "auth", "AuthenticationError"),
    ("NOPERM this user has no permissions to run the 'get' command", "auth", "NoPermissionError"),
    ("WRONGTYPE Operation against a key holding the wrong kind of value", "internal", "ResponseError"),
    ("CROSSSLOT Keys in request don't hash to the same slot", "internal", "ClusterCrossSlotError"),
    ("ERR unknown command", "invalid_request", "ResponseError"),
]  # fmt: skip


@pytest.mark.parametrize(("answer", "kind", "name"), ANSWERS)
def test_an_error_of_the_server_means(answer, kind, name):
    with serving(redis_talk(f"-{answer}\r\n".encode())) as port:
        evidence, verdict = seen(lambda: ask(port))
    assert (verdict.kind, evidence.names[0]) == (kind, f"redis.exceptions.{name}"), verdict


def test_a_wrong_password_is_no_connection_error():
    wrong = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
    with serving(redis_talk(b"", to_auth=wrong)) as port:
        evidence, verdict = seen(lambda: ask(port, password="c4n4ry"))
    assert "redis.exceptions.ConnectionError" in evidence.names
    assert verdict.kind == "auth"


def test_a_connection_that_is_closed_fails_in_passing():
    with serving(redis_talk(b"")) as port:
        assert seen(lambda: ask(port))[1].kind == "storage_transient"


def test_no_answer_in_time_is_a_timeout():
    with serving(lambda connection: connection.recv(1_000_000) and connection.recv(1)) as port:
        assert seen(lambda: ask(port, TIMEOUT_S))[1].kind == "timeout"


def test_a_server_that_is_not_there_fails_in_passing(closed_port):
    port = int(closed_port.rpartition(":")[2])
    assert seen(lambda: ask(port))[1].kind == "storage_transient"


def test_an_empty_pool_is_our_own_shortage():
    with serving(redis_talk(b"$-1\r\n")) as port:
        one = redis.ConnectionPool(host="127.0.0.1", port=port, max_connections=1, protocol=2)
        taken = one.get_connection()
        evidence, verdict = seen(one.get_connection)
        one.release(taken)
        one.disconnect()
    assert verdict.kind == "resource_exhausted", evidence


def test_a_lock_that_is_lost_stops_the_work():
    with serving(redis_talk(b":0\r\n")) as port:
        client = redis.Redis("127.0.0.1", port, protocol=2)
        lock = client.lock("name")
        lock.local.token = b"mine"
        _, verdict = seen(lock.release)
        client.close()
    assert (verdict.kind, verdict.rule) == ("cancelled", "redis.LockNotOwnedError")

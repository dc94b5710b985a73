"""What each outcome means: the tables, with real exceptions and real answers."""

import asyncio
import concurrent.futures
import errno
import http.client
import json
import socket
import ssl
import threading
import urllib.error
import urllib.request

import msgspec
import pytest
from hypothesis import given, strategies as st

from perdure.model.errors import CallerError, ConfigError, PayloadRefused, StageError
from perdure.model.kinds import Kind
from perdure.model.limits import MESSAGE_CHARS_MAX
from perdure.model.outcomes import (
    Death,
    Evidence,
    Interrupted,
    Lost,
    Raised,
    Returned,
    Revoked,
    Snoozed,
    TimedOut,
    Withdrawn,
)
from perdure.model.verdicts import Failure, Handback, Pause, Stop, Success
from perdure.rules.classify import MATCHERS, classify, judge
from perdure.rules.evidence import evidence_of
from perdure.rules.matchers.http import STATUSES, http_status
from perdure.rules.matchers.python import CLASSES, ERRNOS

OUTCOMES = [
    (Returned("5", "passed"), Success("5", "passed")),
    (Returned("null"), Success("null", None)),
    (Snoozed(2.5, "not ready"), Pause(2.5, "not ready")),
    (Withdrawn("obsolete"), Stop("obsolete")),
    (Revoked("by hand"), Stop("by hand")),
    (Interrupted("shutdown"), Handback("shutdown")),
    (TimedOut(60.0), Failure(Kind.TIMEOUT, "stage timeout", "no end within 60 s")),
    (
        Lost(Death("exited", signal="SIGKILL")),
        Failure(Kind.WORKER_LOST, "worker lost", "the worker was killed by SIGKILL"),
    ),
    (
        Lost(Death("silent")),
        Failure(Kind.WORKER_LOST, "worker lost", "the worker went silent"),
    ),
    (
        Raised(Evidence(("x.Odd", "builtins.Exception"), "odd")),
        Failure(Kind.UNKNOWN, "nobody knew", "odd"),
    ),
]


@pytest.mark.parametrize(("outcome", "verdict"), OUTCOMES)
def test_every_outcome_has_its_verdict(outcome, verdict):
    assert classify(outcome) == verdict


def test_the_table_covers_every_outcome():
    from perdure.model import outcomes

    assert {type(outcome) for outcome, _ in OUTCOMES} == set(outcomes.Outcome.__args__)


@pytest.mark.parametrize("make", [Withdrawn, Revoked, Interrupted, lambda text: Snoozed(1.0, text)])
def test_a_reason_is_cut_and_cleaned_before_it_is_kept(make):
    reason = classify(make("because\n\ud800\x00" + "x" * 1_000_000)).reason
    assert reason.startswith("because ? x")
    assert len(reason) == MESSAGE_CHARS_MAX
    assert msgspec.json.encode(reason)


STATUS_TABLE = {
    400: "invalid_request", 401: "auth", 402: "billing", 403: "auth", 404: "not_found",
    405: "invalid_request", 406: "invalid_request", 408: "timeout", 409: "upstream_error",
    410: "not_found", 413: "too_large", 415: "invalid_request", 418: "invalid_request",
    422: "invalid_request", 425: "timeout", 429: "rate_limited", 431: "too_large",
    499: "cancelled", 500: "upstream_error", 501: "invalid_request", 502: "upstream_unavailable",
    503: "upstream_unavailable", 504: "timeout", 505: "upstream_error", 520: "upstream_error",
    529: "overloaded", 599: "upstream_error",
}  # fmt: skip


class Answered(Exception):
    def __init__(self, status_code, headers=()):
        super().__init__(f"HTTP {status_code}")
        self.status_code = status_code
        self.headers = dict(headers)


@pytest.mark.parametrize(("status", "kind"), STATUS_TABLE.items())
def test_an_http_status_means(status, kind):
    verdict = judge(evidence_of(Answered(status)))
    assert (verdict.kind, verdict.rule) == (Kind(kind), "http status")


def test_every_listed_status_is_pinned_here():
    assert set(STATUSES) <= set(STATUS_TABLE)


@pytest.mark.parametrize("status", [100, 200, 204, 301, 399, 600, 999])
def test_a_status_that_is_no_error_says_nothing(status):
    assert http_status(evidence_of(Answered(status))) is None
    assert judge(evidence_of(Answered(status))).kind is Kind.UNKNOWN


@pytest.mark.parametrize("status", range(400, 600))
def test_every_error_status_means_something(status):
    kind = http_status(evidence_of(Answered(status)))
    assert kind is not None
    assert kind is not Kind.UNKNOWN


def test_the_hint_travels_with_the_verdict():
    verdict = classify(Raised(evidence_of(Answered(429, {"Retry-After": "17"}))))
    assert verdict == Failure(Kind.RATE_LIMITED, "http status", "HTTP 429", 17.0)


def undecodable() -> None:
    msgspec.json.decode(b"{")


def invalid() -> None:
    msgspec.json.decode(b'"x"', type=int)


def unparsable() -> None:
    json.loads("{")


def too_deep() -> None:
    too_deep()


def missing_file() -> None:
    open("/nowhere/at/all")  # noqa: PTH123, SIM115


def missing_name() -> None:
    nobody  # noqa: B018, F821


def missing_attribute() -> None:
    None.nothing  # noqa: B018


def wrong_call() -> None:
    len(5)


def missing_module() -> None:
    import nowhere.at_all  # noqa: F401


def wrong_source() -> None:
    compile("def", "x", "exec")


def cancelled_future() -> None:
    future: concurrent.futures.Future[None] = concurrent.futures.Future()
    future.cancel()
    future.result()


def refused_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]  # closed again: nobody listens


def refused_connection() -> None:
    socket.create_connection(("127.0.0.1", refused_port()), timeout=5)


def refused_url() -> None:
    urllib.request.urlopen(f"http://127.0.0.1:{refused_port()}", timeout=5)


def unknown_host() -> None:
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


def url_timeout() -> None:
    try:
        raise TimeoutError("timed out")
    except OSError as error:
        raise urllib.error.URLError(error)  # noqa: B904 - as urllib does it


def url_odd() -> None:
    try:
        int("odd")
    except ValueError as error:
        raise urllib.error.URLError(error)  # noqa: B904 - as urllib does it


def hung_up() -> None:
    """A server that takes the request and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take() -> None:
            taken, _ = server.accept()
            with taken:
                taken.recv(4096)

        thread = threading.Thread(target=take)
        thread.start()
        try:
            connection = http.client.HTTPConnection(*server.getsockname(), timeout=5)
            connection.request("GET", "/")
            connection.getresponse()
        finally:
            connection.close()
            thread.join(5)


def never_answered() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        urllib.request.urlopen(f"http://{host}:{port}", timeout=0.05)


def exits() -> None:
    raise SystemExit(3)


def thrown(error: BaseException):
    def throw() -> None:
        raise error

    throw.__name__ = type(error).__name__
    return throw


PYTHON = [
    (unparsable, "invalid_output", "python class"),
    (undecodable, "invalid_output", "python class"),
    (invalid, "invalid_output", "python class"),
    (thrown(PayloadRefused("the result is too large")), "invalid_output", "python class"),
    (thrown(CallerError("Snooze.wait_s is nan")), "internal", "python class"),
    (thrown(ConfigError("unknown failure kind")), "internal", "python class"),
    (thrown(TimeoutError()), "timeout", "python class"),
    (thrown(TimeoutError()), "timeout", "python class"),
    (never_answered, "timeout", "python class"),
    (thrown(asyncio.CancelledError()), "cancelled", "python class"),
    (cancelled_future, "cancelled", "python class"),
    (thrown(MemoryError()), "resource_exhausted", "python class"),
    (too_deep, "internal", "python class"),
    (thrown(http.client.IncompleteRead(b"half")), "ambiguous", "python class"),
    (hung_up, "ambiguous", "python class"),
    (thrown(http.client.BadStatusLine("?")), "network", "python class"),
    (unknown_host, "network", "python class"),
    (thrown(ssl.SSLCertVerificationError(1, "self signed")), "config_missing", "python class"),
    (thrown(ssl.SSLEOFError(8, "EOF")), "network", "python class"),
    (refused_url, "network", "python class"),
    (thrown(urllib.error.URLError("no host given")), "network", "python class"),
    (url_timeout, "timeout", "python class"),
    (url_odd, "network", "python class"),
    (refused_connection, "network", "python class"),
    (thrown(BrokenPipeError(errno.EPIPE, "pipe")), "network", "python class"),
    (missing_file, "not_found", "python class"),
    (thrown(AssertionError()), "internal", "python class"),
    (missing_attribute, "internal", "python class"),
    (missing_module, "internal", "python class"),
    (missing_name, "internal", "python class"),
    (thrown(NotImplementedError()), "internal", "python class"),
    (wrong_source, "internal", "python class"),
    (wrong_call, "internal", "python class"),
    (thrown(KeyboardInterrupt()), "internal", "python class"),
    (exits, "internal", "python class"),
    (thrown(GeneratorExit()), "internal", "python class"),
    (thrown(ValueError("no total")), "unknown", "nobody knew"),
    (thrown(KeyError("total")), "unknown", "nobody knew"),
    (thrown(RuntimeError("odd")), "unknown", "nobody knew"),
    (thrown(Exception()), "unknown", "nobody knew"),
    (thrown(PermissionError(errno.EACCES, "no")), "unknown", "nobody knew"),
]


def caught(call) -> BaseException:
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError(f"{call.__name__} raised nothing")


@pytest.mark.parametrize(
    ("call", "kind", "rule"), PYTHON, ids=[f"{n}-{row[0].__name__}" for n, row in enumerate(PYTHON)]
)
def test_a_python_exception_means(call, kind, rule):
    verdict = judge(evidence_of(caught(call)))
    assert (verdict.kind, verdict.rule) == (Kind(kind), rule)


def test_every_listed_class_is_raised_here():
    seen = {name for call, _, _ in PYTHON for name in evidence_of(caught(call)).names}
    assert set(CLASSES) - seen == set()


@pytest.mark.parametrize(("name", "kind"), ERRNOS.items())
def test_a_system_error_number_means(name, kind):
    number = getattr(errno, name)
    assert judge(evidence_of(OSError(number, "it failed"))).kind is kind


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "ENOMEM"])
def test_a_number_without_a_class_of_its_own_is_known_by_the_number(name):
    error = OSError(getattr(errno, name), "it failed")
    assert judge(evidence_of(error)).rule == "errno"


def test_a_vendor_class_is_known_by_what_it_descends_from():
    vendor = type("ApiTimeout", (TimeoutError,), {"__module__": "vendor.errors"})
    assert judge(evidence_of(vendor("slow"))).kind is Kind.TIMEOUT


def test_the_nearest_class_wins():
    both = type("Both", (json.JSONDecodeError, ConnectionError), {})
    assert judge(evidence_of(both("x", "", 0))).kind is Kind.INVALID_OUTPUT


@pytest.mark.parametrize("kind", sorted(set(Kind) - {Kind.WORKER_LOST}))
def test_what_the_stage_says_goes_before_everything(kind):
    class Both(StageError, TimeoutError):
        status_code = 429

    verdict = judge(evidence_of(Both(kind.value, "mine")))
    assert (verdict.kind, verdict.rule) == (kind, "stated by the stage")


def test_a_status_goes_before_a_class():
    class Both(ConnectionError):
        status = 404

    assert judge(evidence_of(Both())).kind is Kind.NOT_FOUND


def test_the_order_of_trust_is_fixed():
    assert [name for name, _ in MATCHERS] == [
        "stated by the stage", "http status", "python class", "errno",
    ]  # fmt: skip


evidences = st.builds(
    Evidence,
    names=st.lists(st.sampled_from([*CLASSES, "x.Odd"]), max_size=4).map(tuple),
    message=st.text(max_size=50),
    status=st.none() | st.integers(),
    headers=st.lists(st.tuples(st.just("retry-after"), st.text(max_size=20)), max_size=2).map(
        tuple
    ),
    errno=st.none() | st.sampled_from([*ERRNOS, "EWHAT", ""]),
    kind=st.none() | st.sampled_from(Kind),
    wait_s=st.none() | st.floats(),
    causes=st.lists(st.lists(st.sampled_from([*CLASSES]), max_size=2).map(tuple), max_size=2).map(
        tuple
    ),
)
outcomes = st.one_of(
    evidences.map(Raised),
    st.builds(Returned, st.just("1"), st.none() | st.text(max_size=20)),
    st.builds(Snoozed, st.floats(), st.text(max_size=20)),
    st.builds(TimedOut, st.floats(0, 1e6)),
    st.builds(
        Lost,
        st.builds(
            Death,
            st.sampled_from(["exited", "stopped", "silent"]),
            st.none() | st.integers(-64, 255),
            st.none() | st.text(max_size=10),
        ),
    ),
    st.builds(Withdrawn, st.text(max_size=20)),
    st.builds(Revoked, st.text(max_size=20)),
    st.builds(Interrupted, st.text(max_size=20)),
)


@given(outcomes)
def test_every_outcome_at_all_has_a_verdict(outcome):
    verdict = classify(outcome)
    assert isinstance(verdict, Success | Failure | Pause | Stop | Handback)
    if isinstance(verdict, Failure):
        assert verdict.rule
        assert verdict.hint_s is None or 0 <= verdict.hint_s < float("inf")


@given(outcomes)
def test_the_same_outcome_always_has_the_same_verdict(outcome):
    assert repr(classify(outcome)) == repr(classify(outcome))  # repr, because NaN is not itself

"""What each outcome means: the order of trust, Python's own exceptions, and a user's own lines."""

import asyncio
import concurrent.futures
import errno
import http.client
import itertools
import json
import queue
import socket
import sqlite3
import ssl
import subprocess
import threading
import tomllib
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
import zipfile
from contextlib import closing
from datetime import UTC, datetime
from io import BytesIO

import msgspec
import pytest
from hypothesis import given, strategies as st

from perdure.model import outcomes
from perdure.model.errors import (
    CallerError,
    ConfigError,
    PayloadRefused,
    StageError,
    StoreBusy,
    StoreFull,
)
from perdure.model.kinds import KINDS, FailureClass, Kind
from perdure.model.limits import MESSAGE_CHARS_MAX
from perdure.model.outcomes import (
    OUT_OF_MEMORY,
    Death,
    Evidence,
    Interrupted,
    Lost,
    Origin,
    Raised,
    Returned,
    Revoked,
    Snoozed,
    StageDeath,
    TimedOut,
    Unbegun,
    Unstorable,
    Withdrawn,
)
from perdure.model.verdicts import Failure, Handback, Overdue, Pause, Stop, Success
from perdure.rules.classify import MATCHERS, classify, classify_evidence, telling_member
from perdure.rules.evidence import evidence_of
from perdure.rules.matchers import Match
from perdure.rules.matchers.families import FAMILIES
from perdure.rules.matchers.http import STATUSES, kind_of_status
from perdure.rules.matchers.python import CLASSES, ERRNOS

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def judged(thing: object, *matches: Match) -> Failure:
    evidence = thing if isinstance(thing, Evidence) else evidence_of(thing)
    verdict = classify(Raised(evidence), now=NOW, matches=matches)
    assert isinstance(verdict, Failure)
    return verdict


# -- outcomes --------------------------------------------------------------------------

OUTCOMES = [
    (Returned("5", "passed"), Success("5", "passed")),
    (Returned("null"), Success("null", None)),
    (Snoozed(2.5, "not ready"), Pause(2.5, "not ready")),
    (Withdrawn("obsolete"), Stop("obsolete")),
    (Revoked("by hand"), Stop("by hand")),
    (Interrupted("shutdown"), Handback("shutdown")),
    (Unbegun(), Overdue()),
    (
        Unstorable("the result is of type set"),
        Failure(Kind.INTERNAL, "result cannot be stored", "the result is of type set", final=True),
    ),
    (TimedOut(60.0), Failure(Kind.TIMEOUT, "stage timeout", "no end within 60 s")),
    (
        Lost(Death("exited", signal="SIGKILL")),
        Failure(Kind.WORKER_LOST, "worker lost", "the worker was killed by SIGKILL"),
    ),
    (Lost(Death("silent")), Failure(Kind.WORKER_LOST, "worker lost", "the worker went silent")),
    (
        Lost(Death("gone")),
        Failure(Kind.WORKER_LOST, "worker lost", "the worker is gone, nobody saw how"),
    ),
    *(
        (
            Lost(death),
            Failure(
                Kind.WORKER_LOST,
                "stage process lost",
                f"the process in which the stage ran {words}",
                apart=True,
            ),
        )
        for death, words in (
            (StageDeath("exited", exit_status=3), "exited with status 3"),
            (StageDeath("exited", signal="SIGSEGV"), "was killed by SIGSEGV"),
            (StageDeath(OUT_OF_MEMORY, signal="SIGKILL"), "was killed by SIGKILL: out of memory"),
        )
    ),
    (
        Raised(Evidence(("x.Odd", "builtins.Exception"), "odd")),
        Failure(Kind.UNKNOWN, "nobody knew", "odd", names=("x.Odd", "builtins.Exception")),
    ),
]


@pytest.mark.parametrize(("outcome", "verdict"), OUTCOMES)
def test_every_outcome_has_its_verdict(outcome, verdict):
    assert classify(outcome, now=NOW) == verdict


def test_the_table_covers_every_outcome():
    assert {type(outcome) for outcome, _ in OUTCOMES} == set(outcomes.Outcome.__args__)


@pytest.mark.parametrize("origin", Origin)
def test_a_failure_has_the_origin_of_its_evidence_and_its_kind_all_the_same(origin):
    found = judged(Evidence(("builtins.KeyError",), "'k'", origin=origin))
    assert (found.kind, found.rule, found.origin) == (Kind.UNKNOWN, "nobody knew", origin)


@pytest.mark.parametrize("make", [Withdrawn, Revoked, Interrupted, lambda text: Snoozed(1.0, text)])
def test_a_reason_is_cut_cleaned_and_made_safe_before_it_is_kept(make):
    reason = classify(
        make("because\n\ud800\x00 password=hunter2 " + "x " * 1_000_000), now=NOW
    ).reason
    assert reason.startswith("because ? password=[secret] x")
    assert len(reason) == MESSAGE_CHARS_MAX
    assert msgspec.json.encode(reason)


# -- the order of trust ----------------------------------------------------------------


def test_the_order_of_trust_is_fixed():
    assert [matcher.__name__ for matcher in MATCHERS] == [
        "trap",
        "strong_code",
        "vendor_class",
        "sqlstate",
        "http_status",
        "weak_code",
        "finish",
        "plain_class",
        "system_error",
        "cause_class",
        "_text_status",
        "words",
    ]


# Each line adds what is trusted more than all the lines below it.
TRUST = [
    (Evidence(message="the server is overloaded"), Kind.OVERLOADED),
    (Evidence(message="status code: 402"), Kind.BILLING),
    (Evidence(causes=(("builtins.TimeoutError",),)), Kind.TIMEOUT),
    (Evidence(errno="ENOSPC"), Kind.RESOURCE_EXHAUSTED),
    (Evidence(names=("json.decoder.JSONDecodeError",)), Kind.INVALID_OUTPUT),
    (Evidence(codes=("finish:length",)), Kind.TRUNCATED_OUTPUT),
    (Evidence(codes=("api_error",)), Kind.UPSTREAM_ERROR),
    (Evidence(status=404), Kind.NOT_FOUND),
    (Evidence(sqlstate="40001"), Kind.STORAGE_TRANSIENT),
    (Evidence(names=("litellm.exceptions.ContentPolicyViolationError",)), Kind.CONTENT_REFUSED),
    (Evidence(codes=("context_length_exceeded",)), Kind.TOO_LARGE),
    (Evidence(codes=("slow_down",), status=429), Kind.RATE_LIMITED),
]


def both(low: Evidence, high: Evidence) -> Evidence:
    return Evidence(
        names=high.names + low.names,
        message=f"{high.message} {low.message}",
        status=high.status or low.status,
        codes=low.codes + high.codes,
        sqlstate=high.sqlstate or low.sqlstate,
        errno=high.errno or low.errno,
        causes=high.causes or low.causes,
    )


@pytest.mark.parametrize(("evidence", "kind"), TRUST)
def test_each_kind_of_evidence_is_enough_alone(evidence, kind):
    assert judged(evidence).kind is kind


@pytest.mark.parametrize("pair", list(itertools.combinations(TRUST, 2)))
def test_what_is_trusted_more_goes_before_what_is_trusted_less(pair):
    (low, _), (high, kind) = pair
    assert judged(both(low, high)).kind is kind


@pytest.mark.parametrize("kind", sorted(set(Kind) - {Kind.WORKER_LOST}))
def test_what_the_stage_says_goes_before_everything(kind):
    class Both(StageError, TimeoutError):
        status_code = 429

    verdict = judged(Both(kind.value, "mine"), Match(Kind.AUTH, name="TimeoutError"))
    assert (verdict.kind, verdict.rule) == (kind, "stated by the stage")


def test_the_hint_the_status_and_the_names_travel_with_the_verdict():
    headers = (("retry-after", "17"),)
    verdict = judged(Evidence(("x.E",), "HTTP 429", 429, headers))
    assert verdict == Failure(
        Kind.RATE_LIMITED, "http status 429", "HTTP 429", 17.0, None, 429, ("x.E",)
    )


# -- the server's own verdict ----------------------------------------------------------

YES, NO = (("x-should-retry", "true"),), (("x-should-retry", "false"),)


@pytest.mark.parametrize("status", [400, 401, 404, 422, 501])
def test_a_server_that_says_retry_makes_what_is_final_an_error_of_its_own(status):
    verdict = judged(Evidence(status=status, headers=YES))
    assert (verdict.kind, verdict.server_says) == (Kind.UPSTREAM_ERROR, True)
    assert verdict.rule == f"the server says retry (http status {status})"


@pytest.mark.parametrize("status", [408, 429, 500, 529])
def test_a_server_that_says_retry_changes_nothing_that_is_not_final(status):
    assert judged(Evidence(status=status, headers=YES)).kind is kind_of_status(status)


def test_a_server_that_says_no_is_heard_and_the_kind_stays():
    verdict = judged(Evidence(status=503, headers=NO))
    assert (verdict.kind, verdict.server_says) == (Kind.UPSTREAM_UNAVAILABLE, False)
    body = judged(Evidence(status=503, facts=(("retryable", "false"),)))
    assert body.server_says is False


def test_the_server_does_not_overrule_the_stage_or_the_user():
    assert judged(Evidence(status=400, headers=YES, kind=Kind.AUTH)).kind is Kind.AUTH
    assert judged(Evidence(status=400, headers=YES), Match(Kind.AUTH, status=400)).kind is Kind.AUTH


def test_nothing_at_all_is_unknown_whatever_the_server_says():
    assert judged(Evidence(headers=YES)).kind is Kind.UNKNOWN


# -- a user's own lines ----------------------------------------------------------------

ODD = Evidence(
    names=("shop.errors.SoldOut", "shop.errors.ShopError", "builtins.Exception"),
    message="Nothing left in stock",
    status=409,
    codes=("SOLD_OUT", "shop"),
    facts=(("message", "come back on Monday"),),
    sqlstate="23505",
)

FITTING = [
    {"status": 409},
    {"code": "SOLD_OUT"},
    {"code": "sold_out"},
    {"name": "SoldOut"},
    {"name": "ShopError"},
    {"name": "shop.errors.ShopError"},
    {"sqlstate": "23505"},
    {"text": "nothing LEFT"},
    {"text": "Monday"},
    {"status": 409, "code": "shop", "name": "SoldOut", "sqlstate": "23505", "text": "stock"},
]
NOT_FITTING = [
    {"status": 400},
    {"code": "sold"},
    {"name": "Sold"},
    {"name": "errors.ShopError"},
    {"sqlstate": "23503"},
    {"text": "Tuesday"},
    {"status": 409, "code": "other"},
    {"status": 409, "text": "Tuesday"},
]


@pytest.mark.parametrize("fields", FITTING)
def test_a_line_fits_where_every_field_matches(fields):
    verdict = judged(ODD, Match(Kind.AUTH, status=1 + 400), Match("overloaded", **fields))
    assert (verdict.kind, verdict.rule) == (Kind.OVERLOADED, "match 2 of the policy")


@pytest.mark.parametrize("fields", NOT_FITTING)
def test_a_line_does_not_fit_where_one_field_does_not(fields):
    assert judged(ODD, Match(Kind.OVERLOADED, **fields)).kind is not Kind.OVERLOADED


def test_the_first_line_that_fits_wins():
    assert (
        judged(ODD, Match(Kind.AUTH, status=409), Match(Kind.BILLING, code="shop")).kind
        is Kind.AUTH
    )


def test_a_line_overrides_the_table():
    evidence = Evidence(codes=("insufficient_quota",), status=429)
    assert judged(evidence).kind is Kind.BILLING
    assert (
        judged(evidence, Match(Kind.RATE_LIMITED, code="insufficient_quota")).kind
        is Kind.RATE_LIMITED
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "matches nothing"),
        ({"code": 5}, "match.code is 5"),
        ({"text": ""}, "match.text is ''"),
        ({"status": "429"}, "match.status is '429'"),
        ({"status": True}, "match.status is True"),
        ({"status": 5}, "match.status is 5"),
        ({"kind": "nonsense", "status": 429}, "match.kind is 'nonsense'"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused(fields, words):
    with pytest.raises(ConfigError, match=words):
        Match(**{"kind": "auth", **fields})


# -- HTTP ------------------------------------------------------------------------------

STATUS_TABLE = {
    400: "invalid_request", 401: "auth", 402: "billing", 403: "auth", 404: "not_found",
    405: "invalid_request", 406: "invalid_request", 407: "auth", 408: "timeout", 409: "invalid_request",
    410: "not_found", 412: "invalid_request", 413: "too_large", 414: "too_large",
    415: "invalid_request", 418: "invalid_request", 422: "invalid_request", 425: "timeout",
    429: "rate_limited", 431: "too_large", 446: "content_refused", 498: "rate_limited",
    499: "cancelled", 500: "upstream_error", 501: "invalid_request", 502: "upstream_unavailable",
    503: "upstream_unavailable", 504: "timeout", 505: "upstream_error", 520: "upstream_error",
    521: "upstream_unavailable", 522: "upstream_unavailable", 523: "upstream_unavailable",
    524: "timeout", 525: "upstream_unavailable", 526: "upstream_unavailable", 529: "overloaded",
    530: "upstream_unavailable", 599: "upstream_error",
}  # fmt: skip


class Answered(Exception):
    def __init__(self, status_code, headers=()):
        super().__init__(f"HTTP {status_code}")
        self.status_code = status_code
        self.headers = dict(headers)


@pytest.mark.parametrize(("status", "kind"), STATUS_TABLE.items())
def test_an_http_status_means(status, kind):
    verdict = judged(Answered(status))
    assert (verdict.kind, verdict.rule) == (Kind(kind), f"http status {status}")


def test_every_listed_status_is_pinned_here():
    assert set(STATUSES) <= set(STATUS_TABLE)


@pytest.mark.parametrize("status", [100, 200, 204, 246, 301, 399, 600, 999])
def test_a_status_that_is_no_error_says_nothing(status):
    assert kind_of_status(status) is None
    assert judged(Answered(status)).kind is Kind.UNKNOWN


@pytest.mark.parametrize("status", range(400, 600))
def test_every_error_status_means_something(status):
    assert kind_of_status(status) not in (None, Kind.UNKNOWN)


# -- Python ----------------------------------------------------------------------------


def undecodable() -> None:
    msgspec.json.decode(b"{")


def invalid() -> None:
    msgspec.json.decode(b'"x"', type=int)


def unparsable() -> None:
    json.loads("{")


def unparsable_xml() -> None:
    ET.fromstring("<a>")


def unparsable_toml() -> None:
    tomllib.loads("=")


def no_zip() -> None:
    zipfile.ZipFile(BytesIO(b"no"))


def too_deep() -> None:
    too_deep()


def full_queue():
    full = queue.Queue(1)
    full.put(1)
    full.put_nowait(2)


def full_async_queue():
    full = asyncio.Queue(1)
    full.put_nowait(1)
    full.put_nowait(2)


def broken_encoding():
    b"\xff\xfe\xfa".decode()


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


def url_timeout() -> None:
    try:
        raise TimeoutError("timed out")
    except OSError as error:
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


def slow_process() -> None:
    raise subprocess.TimeoutExpired("sleep", 5)


def broken_constraint() -> None:
    with closing(sqlite3.connect(":memory:")) as one:
        one.execute("create table t (a unique)")
        one.execute("insert into t values (1)")
        one.execute("insert into t values (1)")


def thrown(error: BaseException):
    def throw() -> None:
        raise error

    throw.__name__ = type(error).__name__
    return throw


def grouped(*errors: Exception):
    return thrown(ExceptionGroup("several", list(errors)))


PYTHON = [
    (unparsable, "invalid_output", "json.JSONDecodeError"),
    (undecodable, "invalid_output", "msgspec.DecodeError"),
    (invalid, "invalid_output", "msgspec.ValidationError"),
    (unparsable_xml, "invalid_output", "xml.ParseError"),
    (unparsable_toml, "invalid_output", "tomllib.TOMLDecodeError"),
    (thrown(PayloadRefused("too large")), "invalid_output", "perdure.PayloadRefused"),
    (no_zip, "input_invalid", "zipfile.BadZipFile"),
    (thrown(CallerError("Snooze.wait_s is nan")), "internal", "perdure.CallerError"),
    (thrown(ConfigError("unknown failure kind")), "internal", "perdure.ConfigError"),
    (thrown(StoreBusy("locked")), "storage_transient", "perdure.StoreUnavailable"),
    (thrown(StoreFull("disk")), "resource_exhausted", "perdure.StoreFull"),
    (thrown(TimeoutError()), "timeout", "builtins.TimeoutError"),
    (slow_process, "timeout", "subprocess.TimeoutExpired"),
    (never_answered, "timeout", "builtins.TimeoutError"),
    (thrown(asyncio.CancelledError()), "cancelled", "asyncio.CancelledError"),
    (cancelled_future, "cancelled", "concurrent.CancelledError"),
    (thrown(MemoryError()), "resource_exhausted", "builtins.MemoryError"),
    (thrown(RuntimeError("CUDA out of memory. Tried to allocate")), "resource_exhausted", "text 'out of memory'"),
    (too_deep, "internal", "builtins.RecursionError"),
    (thrown(http.client.IncompleteRead(b"half")), "ambiguous", "http.IncompleteRead"),
    (hung_up, "ambiguous", "http.RemoteDisconnected"),
    (thrown(http.client.BadStatusLine("?")), "ambiguous", "http.BadStatusLine"),
    (thrown(http.client.InvalidURL("?")), "invalid_request", "http.InvalidURL"),
    (thrown(socket.gaierror(socket.EAI_NONAME, "unknown")), "network", "socket.gaierror"),
    (thrown(ssl.SSLCertVerificationError(1, "self signed")), "config_missing", "ssl.SSLCertVerificationError"),
    (thrown(ssl.SSLEOFError(8, "EOF")), "ambiguous", "ssl.SSLEOFError"),
    (thrown(ssl.SSLError(1, "handshake")), "network", "ssl.SSLError"),
    (refused_url, "network", "urllib.URLError from builtins.ConnectionRefusedError"),
    (thrown(urllib.error.URLError("no host given")), "network", "urllib.URLError"),
    (url_timeout, "timeout", "urllib.URLError from builtins.TimeoutError"),
    (refused_connection, "network", "builtins.ConnectionRefusedError"),
    (thrown(ConnectionResetError(errno.ECONNRESET, "reset")), "ambiguous", "builtins.ConnectionResetError"),
    (thrown(ConnectionAbortedError()), "ambiguous", "builtins.ConnectionAbortedError"),
    (thrown(BrokenPipeError(errno.EPIPE, "pipe")), "ambiguous", "builtins.BrokenPipeError"),
    (thrown(ConnectionError("somehow")), "network", "builtins.ConnectionError"),
    (thrown(asyncio.IncompleteReadError(b"", 5)), "ambiguous", "asyncio.IncompleteReadError"),
    (missing_file, "not_found", "builtins.FileNotFoundError"),
    (thrown(PermissionError(errno.EACCES, "no")), "config_missing", "builtins.PermissionError"),
    (broken_constraint, "invalid_request", "sqlite code SQLITE_CONSTRAINT_UNIQUE"),
    (full_queue, "resource_exhausted", "queue.Full"),
    (full_async_queue, "resource_exhausted", "asyncio.QueueFull"),
    (broken_encoding, "invalid_output", "builtins.UnicodeDecodeError"),
    (thrown(AssertionError()), "internal", "builtins.AssertionError"),
    (missing_attribute, "internal", "builtins.AttributeError"),
    (missing_module, "internal", "builtins.ImportError"),
    (missing_name, "internal", "builtins.NameError"),
    (thrown(NotImplementedError()), "internal", "builtins.NotImplementedError"),
    (wrong_source, "internal", "builtins.SyntaxError"),
    (wrong_call, "internal", "builtins.TypeError"),
    (thrown(KeyboardInterrupt()), "internal", "builtins.KeyboardInterrupt"),
    (thrown(SystemExit(3)), "internal", "builtins.SystemExit"),
    (thrown(GeneratorExit()), "internal", "builtins.GeneratorExit"),
    (grouped(TypeError("x")), "internal", "builtins.BaseExceptionGroup from builtins.TypeError"),
    (grouped(Answered(503), TypeError("x")), "upstream_unavailable", "http status 503"),
    (grouped(ValueError("x")), "unknown", "nobody knew"),
    (thrown(ValueError("no total")), "unknown", "nobody knew"),
    (thrown(KeyError("total")), "unknown", "nobody knew"),
    (thrown(RuntimeError("odd")), "unknown", "nobody knew"),
    (thrown(Exception()), "unknown", "nobody knew"),
]  # fmt: skip


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
    verdict = judged(caught(call))
    assert (verdict.kind, verdict.rule) == (Kind(kind), rule)


def test_every_builtin_class_that_is_listed_is_raised_here():
    seen = {name for call, _, _ in PYTHON for name in evidence_of(caught(call)).names}
    assert {name for name in CLASSES if name.startswith("builtins.")} - seen == set()


@pytest.mark.parametrize(("name", "kind"), ERRNOS.items())
def test_a_system_error_number_means(name, kind):
    number = getattr(errno, name)
    assert judged(OSError(number, "it failed")).kind is kind


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT", "EMFILE", "ENFILE", "ENOMEM", "EIO"])
def test_a_number_without_a_class_of_its_own_is_known_by_the_number(name):
    assert judged(OSError(getattr(errno, name), "it failed")).rule == f"errno {name}"


def test_a_vendor_class_is_known_by_what_it_descends_from():
    vendor = type("ApiTimeout", (TimeoutError,), {"__module__": "vendor.errors"})
    assert judged(vendor("slow")).kind is Kind.TIMEOUT


def test_the_nearest_class_wins():
    class Both(json.JSONDecodeError, ConnectionError):
        pass

    assert judged(Both("x", "", 0)).kind is Kind.INVALID_OUTPUT


def test_a_status_goes_before_a_python_class():
    class Both(ConnectionError):
        status = 404

    assert judged(Both()).kind is Kind.NOT_FOUND


# -- groups ----------------------------------------------------------------------------

LIMIT, DEFECT, PLAIN_ONE = StageError("rate_limited", "slow"), TypeError("x"), ValueError("y")
LATE, QUIT = StageError("timeout", "late"), KeyboardInterrupt()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PLAIN_ONE, PLAIN_ONE),
        (ExceptionGroup("one", [LIMIT]), LIMIT),
        (ExceptionGroup("alike", [LATE, PLAIN_ONE]), LATE),  # the first of the worst
        (ExceptionGroup("mixed", [LIMIT, LATE]), LATE),
        (ExceptionGroup("mixed", [LIMIT, LATE, DEFECT]), DEFECT),
        (ExceptionGroup("nested", [LIMIT, ExceptionGroup("in", [LATE, DEFECT])]), DEFECT),
        (BaseExceptionGroup("all", [LATE, QUIT]), QUIT),
    ],
)
def test_the_worst_member_of_a_group_speaks_for_it(error, told):
    assert telling_member(error) is told


def test_a_group_of_somebodys_own_class_speaks_for_itself_and_a_large_one_is_looked_at_in_part():
    class OwnGroup(ExceptionGroup):
        pass

    own = OwnGroup("own", [LIMIT])
    assert telling_member(own) is own
    assert telling_member(ExceptionGroup("many", [LIMIT] * 1_000 + [DEFECT])) is LIMIT


# -- causes ----------------------------------------------------------------------------


def test_a_cause_makes_a_failure_worth_a_retry():
    verdict = judged(Evidence(("x.Odd",), causes=(("y.Odd",), ("httpx.ReadTimeout",))))
    assert (verdict.kind, verdict.rule) == (Kind.TIMEOUT, "caused by httpx.ReadTimeout")


@pytest.mark.parametrize("name", ["builtins.TypeError", "builtins.FileNotFoundError"])
def test_a_cause_never_makes_a_failure_final(name):
    assert judged(Evidence(("x.Odd",), causes=((name,),))).kind is Kind.UNKNOWN


# -- every family ----------------------------------------------------------------------


def test_every_code_that_two_families_know_means_the_same_to_both():
    seen: dict[str, set[Kind]] = {}
    for family in FAMILIES:
        for table in (family.codes, family.weak_codes):
            for code, kind in table.items():
                seen.setdefault(code, set()).add(kind)
    # S3's own is a store's passing failure; Azure's is a model's.
    assert {code for code, kinds in seen.items() if len(kinds) > 1} == {"ServiceUnavailable"}


@pytest.mark.parametrize("family", FAMILIES, ids=[family.name for family in FAMILIES])
def test_every_line_of_a_family_s_tables_is_reached(family):
    root = next(iter(sorted(family.roots)), "x")
    for code, kind in family.codes.items():
        found = judged(Evidence((f"{root}.Any",), status=418, codes=(code,)))
        assert (found.kind, code in found.rule) == (kind, True)
    for code, kind in family.weak_codes.items():
        assert judged(Evidence((f"{root}.Any",), codes=(code,))).kind is kind
        assert judged(Evidence((f"{root}.Any",), status=404, codes=(code,))).kind is Kind.NOT_FOUND
    for name, kind in {**family.classes, **family.wrappers}.items():
        assert judged(Evidence((name,))).kind is kind
    for name, kind in family.late_classes.items():
        assert judged(Evidence((name,))).kind is kind
        assert judged(Evidence((name,), status=404)).kind is Kind.NOT_FOUND
    for name, status in family.statuses.items():
        assert judged(Evidence((name,))).kind is kind_of_status(status)


# -- properties ------------------------------------------------------------------------

known_names = [
    name
    for family in FAMILIES
    for table in (family.classes, family.late_classes, family.wrappers, family.statuses)
    for name in table
]
known_codes = [code for family in FAMILIES for code in (*family.codes, *family.weak_codes)]
words = st.sampled_from(
    [
        "rate limit",
        "limit: 0",
        "per day",
        "Limit 5, Requested 9",
        "timed out",
        "password",
        "503",
        "HTTP 500",
    ]
)
names = st.lists(st.sampled_from([*known_names, "x.Odd", ""]), max_size=4).map(tuple)
evidences = st.builds(
    Evidence,
    names=names,
    message=st.text(max_size=50) | words,
    status=st.none() | st.integers() | st.sampled_from([200, 402, 429, 503]),
    headers=st.lists(
        st.tuples(st.sampled_from(["retry-after", "x-should-retry"]), st.text(max_size=20)),
        max_size=2,
    ).map(tuple),
    codes=st.lists(st.sampled_from([*known_codes, "finish:length", "odd", ""]), max_size=3).map(
        tuple
    ),
    facts=st.lists(
        st.tuples(
            st.sampled_from(["message", "quotaId", "resets_at", "originalStatusCode"]),
            st.text() | words,
        ),
        max_size=3,
    ).map(tuple),
    sqlstate=st.none() | st.text(max_size=6) | st.sampled_from(["57014", "08P01", "40001"]),
    errno=st.none() | st.sampled_from([*ERRNOS, "EWHAT", ""]),
    kind=st.none() | st.sampled_from(Kind),
    wait_s=st.none() | st.floats(),
    causes=st.lists(names, max_size=2).map(tuple),
)
others = st.one_of(
    st.builds(Returned, st.just("1"), st.none() | st.text(max_size=20)),
    st.builds(Snoozed, st.floats(), st.text(max_size=20)),
    st.builds(TimedOut, st.floats(0, 1e6)),
    st.builds(Unstorable, st.text(max_size=20)),
    st.builds(Withdrawn, st.text(max_size=20)),
    st.builds(Interrupted, st.text(max_size=20)),
)


@given(evidences.map(Raised) | others)
def test_every_outcome_at_all_has_a_verdict(outcome):
    verdict = classify(outcome, now=NOW, matches=(Match(Kind.AUTH, text="password"),))
    assert isinstance(verdict, Success | Failure | Pause | Stop | Handback)
    if isinstance(verdict, Failure):
        assert verdict.rule
        assert verdict.hint_s is None or 0 <= verdict.hint_s < float("inf")
    again = classify(outcome, now=NOW, matches=(Match(Kind.AUTH, text="password"),))
    assert repr(again) == repr(verdict)  # repr, because NaN is not itself


@given(evidences)
def test_a_server_that_says_retry_never_leaves_a_failure_final(evidence):
    told = Evidence(evidence.names, evidence.message, evidence.status, YES, evidence.codes)
    assert KINDS[classify_evidence(told, now=NOW).kind].failure_class is not FailureClass.FINAL

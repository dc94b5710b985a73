"""From any exception to evidence: bounded, on one line, storable, whatever the exception does."""

import email.message
import errno
import json
import urllib.error

import msgspec
import pytest
from hypothesis import given, strategies as st

from perdure.model.errors import StageError
from perdure.model.kinds import Kind
from perdure.model.limits import (
    CAUSES_MAX,
    HEADER_CHARS_MAX,
    HEADERS_MAX,
    MESSAGE_CHARS_MAX,
    NAMES_MAX,
)
from perdure.model.outcomes import Evidence
from perdure.rules.evidence import evidence_of, one_line


class Response:
    def __init__(self, status_code, headers):
        self.status_code = status_code
        self.headers = headers


class ApiError(Exception):
    """As vendor libraries write them: the answer hangs on the error."""

    def __init__(self, status_code=None, headers=None):
        super().__init__("the provider said no")
        self.response = Response(status_code, headers if headers is not None else {})


def stored(evidence: Evidence) -> Evidence:
    return msgspec.json.decode(msgspec.json.encode(evidence), type=Evidence)


def test_the_ancestry_is_kept_by_qualified_name_nearest_first():
    assert evidence_of(json.JSONDecodeError("Expecting value", "", 0)).names == (
        "json.decoder.JSONDecodeError",
        "builtins.ValueError",
        "builtins.Exception",
        "builtins.BaseException",
    )


def test_a_very_long_ancestry_is_cut():
    deep = Exception
    for n in range(40):
        deep = type(f"E{n}", (deep,), {})
    assert len(evidence_of(deep()).names) == NAMES_MAX


def test_a_huge_class_name_is_cut():
    assert max(map(len, evidence_of(type("E" * 100_000, (Exception,), {})()).names)) <= 200


def test_a_message_of_fifty_megabytes_is_cut_with_a_mark():
    message = evidence_of(ValueError("x" * 50_000_000)).message
    assert len(message) == MESSAGE_CHARS_MAX
    assert message.endswith("…")


def test_a_message_is_one_line_without_what_stores_and_terminals_choke_on():
    seen = evidence_of(ValueError("a\nb\r\n\tc\x00d \x1b[2Je\x07 \ud800 é 🎉"))
    assert seen.message == "a b c d [2Je ? é 🎉"
    assert stored(seen) == seen


class Silent(Exception):
    def __str__(self):
        raise self.args[0]


@pytest.mark.parametrize(
    "broken",
    [
        ValueError, TypeError, AttributeError, KeyError, IndexError, RuntimeError, RecursionError,
        ZeroDivisionError, OSError, AssertionError, NotImplementedError, UnicodeError, EOFError,
    ],
)  # fmt: skip
def test_a_text_that_raises_is_said_to_raise(broken):
    assert evidence_of(Silent(broken("x"))).message == f"(its text raises {broken.__name__})"


def test_a_text_that_is_no_text_is_said_to_raise():
    class Odd(Exception):
        def __str__(self):
            return 5  # noqa: PLE0307

    assert evidence_of(Odd()).message == "(its text raises TypeError)"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ApiError(429), 429),
        (
            urllib.error.HTTPError("http://127.0.0.1", 503, "busy", email.message.Message(), None),
            503,
        ),
        (type("E", (Exception,), {"status": 404})(), 404),
        (type("E", (Exception,), {"status_code": "500"})(), None),
        (type("E", (Exception,), {"status_code": True})(), None),
        (type("E", (Exception,), {"code": 7})(), None),
        (type("E", (Exception,), {"code": 10_000})(), None),
        (ApiError("nonsense"), None),
        (SystemExit(1), None),
        (SystemExit(404), None),
        (ValueError(), None),
    ],
)
def test_an_http_status_is_found_on_the_error_or_its_response(error, status):
    assert evidence_of(error).status == status


def test_only_headers_that_matter_are_kept():
    kept = {
        "Retry-After": "5",
        "X-RateLimit-Remaining": "0",
        "anthropic-ratelimit-tokens-reset": "soon",
        "RateLimit": "limit=5",
        "X-Request-Id": "r1",
        "Date": "now",
        "x-should-retry": "true",
        "retry-after-ms": "50",
    }
    others = {"Authorization": "secret", "Set-Cookie": "secret", "Content-Type": "text/plain"}
    found = evidence_of(ApiError(429, {**kept, **others})).headers
    assert dict(found) == {name.lower(): value for name, value in kept.items()}


def test_headers_are_bounded_in_number_and_length():
    many = {f"x-ratelimit-{n}": "v" * 10_000 for n in range(500)}
    found = evidence_of(ApiError(429, many)).headers
    assert len(found) == HEADERS_MAX
    assert {len(value) for _, value in found} == {HEADER_CHARS_MAX}


def test_headers_of_the_standard_library_are_read():
    headers = email.message.Message()
    headers["Retry-After"] = "7"
    error = urllib.error.HTTPError("http://127.0.0.1", 429, "slow down", headers, None)
    assert evidence_of(error).headers == (("retry-after", "7"),)


@pytest.mark.parametrize("headers", [None, 5, "retry-after: 5", ["retry-after"], object()])
def test_headers_of_no_known_form_are_ignored(headers):
    error = type("E", (Exception,), {"headers": headers})()
    assert evidence_of(error).headers == ()


class Cursed:
    """Every look at it raises."""

    def __getattr__(self, name):
        raise RuntimeError(name)


class CursedError(Exception):
    @property
    def response(self):
        raise RuntimeError("no request was made")

    @property
    def status_code(self):
        raise OSError("closed")

    headers = Cursed()


def test_attributes_that_raise_are_not_there():
    seen = evidence_of(CursedError("text"))
    assert (seen.status, seen.headers, seen.message) == (None, (), "text")


def test_headers_that_raise_are_not_there():
    class Closed(dict):
        def items(self):
            raise OSError("closed")

    assert evidence_of(ApiError(500, Closed(a=1))).headers == ()
    assert evidence_of(ApiError(500, {"retry-after": Silent(ValueError())})).headers == ()


def test_header_names_and_values_of_any_type_become_text():
    assert evidence_of(ApiError(429, {"Retry-After": 5})).headers == (("retry-after", "5"),)
    assert evidence_of(ApiError(429, {5: 5})).headers == ()


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (OSError(errno.ENOSPC, "full"), "ENOSPC"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "ECONNRESET"),
        (OSError("no number"), None),
        (OSError(999_999, "odd"), None),
        (ValueError(5), None),
    ],
)
def test_the_system_error_number_is_kept_by_name(error, name):
    assert evidence_of(error).errno == name


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    error.__cause__ = cause
    return error


def test_causes_are_kept_in_order():
    inner = raised(TimeoutError("read"))
    middle = raised(ConnectionError("pool"), inner)
    seen = evidence_of(raised(RuntimeError("call"), middle))
    assert [names[0] for names in seen.causes] == [
        "builtins.ConnectionError",
        "builtins.TimeoutError",
    ]


def test_what_was_being_dealt_with_counts_as_a_cause():
    error = RuntimeError("while looking")
    error.__context__ = KeyError("missing")
    assert evidence_of(error).causes[0][0] == "builtins.KeyError"


def test_a_loop_of_causes_ends():
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__ = other, one
    assert [names[0] for names in evidence_of(one).causes] == ["builtins.KeyError"]
    one.__cause__ = one
    assert evidence_of(one).causes == ()


def test_a_long_chain_of_causes_is_cut():
    error = ValueError("0")
    for n in range(50):
        error = raised(ValueError(str(n + 1)), error)
    assert len(evidence_of(error).causes) == CAUSES_MAX


def test_what_a_stage_says_itself_is_kept():
    seen = evidence_of(StageError("rate_limited", "slow down", wait_s=12))
    assert (seen.kind, seen.wait_s, seen.message) == (Kind.RATE_LIMITED, 12.0, "slow down")
    assert stored(seen) == seen


@pytest.mark.parametrize("wait_s", ["12", b"12", [], True, 10**400, float("nan"), float("inf"), -1])
def test_a_stated_wait_that_is_no_length_of_time_is_ignored(wait_s):
    assert evidence_of(StageError("rate_limited", "slow down", wait_s=wait_s)).wait_s is None


def test_a_stage_error_that_was_never_finished_is_still_evidence():
    class Hasty(StageError):
        def __init__(self):
            Exception.__init__(self, "in a hurry")

    seen = evidence_of(Hasty())
    assert (seen.kind, seen.wait_s, seen.message) == (None, None, "in a hurry")


@given(st.text(), st.integers(2, 50))
def test_one_line_is_one_bounded_printable_line(text, chars_max):
    line = one_line(text, chars_max)
    assert len(line) <= chars_max
    assert line.encode().decode() == line
    assert line == " ".join(line.split())
    assert not any(char < " " or "\x7f" <= char <= "\x9f" for char in line)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126)), st.integers(2, 50))
def test_one_line_marks_exactly_what_it_cut(text, chars_max):
    whole = " ".join(text.split())
    line = one_line(text, chars_max)
    if line == whole:
        return
    assert line.endswith("…")
    assert whole.startswith(line[:-1].rstrip())


@given(
    st.text(),
    st.none() | st.integers(),
    st.dictionaries(st.text(max_size=20), st.text(max_size=400), max_size=40),
)
def test_evidence_of_anything_can_be_stored_and_read_back(text, status, headers):
    error = ApiError(status, {f"x-ratelimit-{name}": value for name, value in headers.items()})
    error.args = (text,)
    seen = evidence_of(error)
    assert stored(seen) == seen
    assert len(msgspec.json.encode(seen)) < 100_000

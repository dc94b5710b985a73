"""From any exception to evidence: bounded, on one line, storable, whatever the exception does."""

import email.message
import errno
import json
import types
import urllib.error

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from perdure.model.errors import (
    OutputInvalid,
    OutputRefused,
    OutputTruncated,
    PayloadRefused,
    StageError,
    StoreUnavailable,
)
from perdure.model.kinds import Kind
from perdure.model.limits import (
    CAUSES_MAX,
    CODES_MAX,
    FACTS_MAX,
    HEADER_CHARS_MAX,
    HEADERS_MAX,
    MESSAGE_CHARS_MAX,
    NAMES_MAX,
)
from perdure.model.outcomes import Evidence
from perdure.rules.evidence import evidence_of, one_line
from tests.rules.secrets_kit import pieces, secrets


class Response:
    def __init__(self, status_code, headers, content=None):
        self.status_code = status_code
        self.headers = headers
        self._content = content


class ApiError(Exception):
    """As vendor libraries write them: the answer hangs on the error."""

    def __init__(self, status_code=None, headers=None, content=None, text="the provider said no"):
        super().__init__(text)
        self.response = Response(status_code, headers if headers is not None else {}, content)


def made(**attributes):
    return type("E", (Exception,), attributes)()


def stored(evidence: Evidence) -> Evidence:
    return msgspec.json.decode(msgspec.json.encode(evidence), type=Evidence)


# -- names -----------------------------------------------------------------------------


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


# -- messages --------------------------------------------------------------------------


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


@pytest.mark.parametrize("broken", [ValueError, RecursionError, SystemExit, KeyboardInterrupt])
def test_a_text_that_raises_is_said_to(broken):
    assert evidence_of(Silent(broken("x"))).message == "(its text cannot be read)"


def test_a_text_that_is_no_text_is_said_to_be_none():
    class Odd(Exception):
        def __str__(self):
            return 5  # noqa: PLE0307

    assert evidence_of(Odd()).message == "(its text cannot be read)"


def test_a_dump_of_the_body_becomes_the_body_s_own_message():
    body = {"error": {"message": "slow down, please", "code": "rate_limit_exceeded"}}
    dump = ApiError(429, {}, json.dumps(body).encode(), text=f"Error code: 429 - {body}")
    assert evidence_of(dump).message == "slow down, please"
    other = ApiError(429, {}, json.dumps(body).encode(), text="the call failed")
    assert evidence_of(other).message == "the call failed"
    assert evidence_of(other).fact("message") == "slow down, please"


# -- status ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (ApiError(429), 429),
        (
            urllib.error.HTTPError("http://127.0.0.1", 503, "busy", email.message.Message(), None),
            503,
        ),
        (made(status=404), 404),
        (made(code=418), 418),
        (made(http_status=502), 502),
        (made(status_code="500"), None),
        (made(status_code=True), None),
        (made(code=7), None),
        (made(code=10_000), None),
        (made(code=10**400), None),
        (ApiError("nonsense"), None),
        (SystemExit(1), None),
        (SystemExit(404), None),
        (ValueError(), None),
        (PayloadRefused("ours"), None),
        (StoreUnavailable("ours"), None),
        (made(response={"ResponseMetadata": {"HTTPStatusCode": 503}}), 503),
    ],
)
def test_an_http_status_is_found_on_the_error_or_its_response(error, status):
    assert evidence_of(error).status == status


def test_a_property_that_is_about_to_go_is_not_touched():
    class Deprecated(Exception):
        status = 503

        @property
        def code(self):
            raise AssertionError("touched")

    assert evidence_of(Deprecated()).status == 503


@pytest.mark.parametrize(
    ("transport", "body", "status"),
    [(200, 429, 429), (None, 502, 502), (404, 502, 404), (200, "503", 503), (200, 399, 200)],
)
def test_a_status_in_the_body_counts_where_the_transport_has_none(transport, body, status):
    content = json.dumps({"error": {"code": body, "message": "x"}}).encode()
    assert evidence_of(ApiError(transport, {}, content)).status == status


# -- headers ---------------------------------------------------------------------------

KEPT = {
    "Retry-After": "5",
    "X-RateLimit-Remaining": "0",
    "anthropic-ratelimit-tokens-reset": "soon",
    "RateLimit": "limit=5",
    "X-Request-Id": "r1",
    "Date": "now",
    "x-should-retry": "true",
    "retry-after-ms": "50",
    "x-ms-retry-after-ms": "60",
    "x-amz-retry-after": "70",
    "grpc-retry-pushback-ms": "80",
}


def test_only_headers_that_matter_are_kept():
    others = {"Authorization": "secret", "Set-Cookie": "secret", "Content-Type": "text/plain"}
    found = evidence_of(ApiError(429, {**KEPT, **others})).headers
    assert dict(found) == {name.lower(): value for name, value in KEPT.items()}


def test_hints_are_not_crowded_out_by_other_headers():
    many = {f"x-ratelimit-{n}": "v" * 10_000 for n in range(150)} | {"retry-after": "5"}
    found = evidence_of(ApiError(429, many)).headers
    assert found[0] == ("retry-after", "5")
    assert len(found) == HEADERS_MAX
    assert max(len(value) for _, value in found) == HEADER_CHARS_MAX


def test_headers_of_the_standard_library_are_read():
    headers = email.message.Message()
    headers["Retry-After"] = "7"
    error = urllib.error.HTTPError("http://127.0.0.1", 429, "slow down", headers, None)
    assert evidence_of(error).headers == (("retry-after", "7"),)


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        (None, ()),
        (5, ()),
        ("retry-after: 5", ()),
        (["retry-after"], ()),
        (object(), ()),
        ([("Retry-After", "5")], (("retry-after", "5"),)),
        ([(b"Retry-After", b"5"), (b"x", b"y")], (("retry-after", "5"),)),
        ({"Retry-After": 5}, (("retry-after", "5"),)),
        ({"Retry-After": 5.5, 5: 5}, ()),
        ({"Retry-After": "5", "x-ratelimit-a": object()}, (("retry-after", "5"),)),
        (
            [("retry-after", "5"), ("retry-after", "9")],
            (("retry-after", "5"), ("retry-after", "9")),
        ),
    ],
)
def test_headers_of_every_form_are_read_and_of_no_form_ignored(headers, found):
    assert evidence_of(made(headers=headers)).headers == found


@pytest.mark.parametrize("place", ["response_headers", "litellm_response_headers"])
def test_headers_are_found_in_other_places(place):
    assert evidence_of(made(**{place: {"Retry-After": "5"}})).header("retry-after") == "5"


def test_a_header_or_a_fact_that_is_not_there_is_none():
    seen = evidence_of(ApiError(429, {"Retry-After": "5", "date": "x"}, b'{"retryAfterMs": 5}'))
    assert (seen.header("date"), seen.header("x-request-id")) == ("x", None)
    assert (seen.fact("retryAfterMs"), seen.fact("retryDelay")) == ("5", None)


def test_headers_of_botocore_are_read():
    metadata = {"HTTPStatusCode": 503, "HTTPHeaders": {"retry-after": "5"}}
    error = made(response={"Error": {"Code": "SlowDown"}, "ResponseMetadata": metadata})
    seen = evidence_of(error)
    assert (seen.status, seen.codes, seen.headers) == (503, ("SlowDown",), (("retry-after", "5"),))


# -- codes, states, numbers ------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "codes"),
    [
        ({"code": "insufficient_quota", "type": "tokens"}, ("insufficient_quota", "tokens")),
        ({"error_code": "ramp", "category": "own", "rate_limit_type": "budget"}, ("ramp", "own", "budget")),
        ({"sqlite_errorname": "SQLITE_BUSY"}, ("SQLITE_BUSY",)),
        ({"status_code": "LOADING"}, ("LOADING",)),
        ({"error": types.SimpleNamespace(code="NoCapacity")}, ("NoCapacity",)),
        ({"code": "two words", "reason": "a sentence. Really.", "type": 5}, ()),
        ({"code": "x" * 101}, ()),
        ({"code": "sk-ant-api03-0123456789abcdef"}, ()),
        ({"code": "error", "type": "none"}, ()),
    ],
)  # fmt: skip
def test_codes_on_an_exception_are_kept(attributes, codes):
    assert evidence_of(made(**attributes)).codes == codes


def test_codes_of_the_body_come_first_and_none_twice():
    body = {"error": {"code": "specific", "type": "broad"}}
    error = made(body=body, code="specific", status="more")
    assert evidence_of(error).codes == ("specific", "broad", "more")


def test_a_code_that_grpc_gives_by_a_method_is_kept():
    code = types.SimpleNamespace(name="RESOURCE_EXHAUSTED")
    kind = type("RpcError", (Exception,), {"__module__": "grpc", "code": lambda self: code})
    assert evidence_of(kind()).codes == ("RESOURCE_EXHAUSTED",)


@pytest.mark.parametrize(
    ("attributes", "state"),
    [
        ({"sqlstate": "40001"}, "40001"),
        ({"pgcode": "40p01"}, "40P01"),
        ({"diag": types.SimpleNamespace(sqlstate="23505")}, "23505"),
        ({"sqlstate": None}, None),
        ({"sqlstate": "4000"}, None),
        ({"sqlstate": "400011"}, None),
        ({"sqlstate": "40 01"}, None),
        ({"sqlstate": 40001}, None),
    ],
)
def test_the_state_of_a_database_is_kept(attributes, state):
    assert evidence_of(made(**attributes)).sqlstate == state


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


def test_tokens_that_were_paid_for_are_kept():
    usage = types.SimpleNamespace(prompt_tokens=7, completion_tokens=3)
    counted = (("input_tokens", 7), ("output_tokens", 3))
    assert evidence_of(made(usage=usage)).usage == counted
    assert evidence_of(made(total_usage=usage)).usage == counted
    assert evidence_of(made(completion=types.SimpleNamespace(usage=usage))).usage == counted
    assert evidence_of(made(usage="many")).usage == ()


def test_the_number_of_codes_is_bounded():
    details = [{"reason": f"r{n}"} for n in range(20)]
    body = {"error": {"code": "c", "status": "s", "type": "t", "details": details}, "code": "top"}
    seen = evidence_of(made(body=body, code="own"))
    assert seen.codes == ("c", *(f"r{n}" for n in range(CODES_MAX - 1)))


# -- causes ----------------------------------------------------------------------------


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause  # noqa: TRY301
    except BaseException as caught:
        return caught


def during(met: BaseException, error: BaseException) -> BaseException:
    try:
        try:
            raise met  # noqa: TRY301
        except BaseException:
            raise error  # noqa: B904
    except BaseException as caught:
        return caught


def first_names(evidence: Evidence) -> list[str]:
    return [names[0] for names in evidence.causes]


def test_causes_are_kept_in_order():
    middle = raised(ConnectionError("pool"), raised(TimeoutError("read")))
    seen = evidence_of(raised(RuntimeError("call"), middle))
    assert first_names(seen) == ["builtins.ConnectionError", "builtins.TimeoutError"]


def test_what_was_being_dealt_with_counts_as_a_cause():
    seen = evidence_of(during(KeyError("x"), RuntimeError("while looking")))
    assert first_names(seen) == ["builtins.KeyError"]


def test_a_context_that_was_hidden_is_still_named():
    error = during(KeyError("x"), RuntimeError("call"))
    error.__suppress_context__ = True
    assert first_names(evidence_of(error)) == ["builtins.KeyError"]


def test_a_loop_of_causes_ends():
    one, other = ValueError("one"), KeyError("other")
    one.__cause__, other.__cause__ = other, one
    assert first_names(evidence_of(one)) == ["builtins.KeyError"]
    one.__cause__ = one
    assert evidence_of(one).causes == ()


def test_a_long_chain_of_causes_is_cut():
    error = ValueError("0")
    for n in range(50):
        error = raised(ValueError(str(n + 1)), error)
    assert len(evidence_of(error).causes) == CAUSES_MAX


def test_an_exception_lends_the_answer_of_what_it_was_raised_from():
    met = ApiError(429, {"Retry-After": "9"}, b'{"error": {"code": "slow_down"}}')
    seen = evidence_of(raised(RuntimeError("the summary failed"), met))
    assert (seen.status, seen.codes, seen.header("retry-after")) == (429, ("slow_down",), "9")
    assert seen.message == "the summary failed"


def test_an_exception_lends_the_number_of_what_it_was_raised_from():
    assert evidence_of(raised(RuntimeError("x"), OSError(errno.ENOSPC, "full"))).errno == "ENOSPC"


def test_an_exception_with_an_answer_keeps_its_own():
    assert evidence_of(raised(ApiError(404), ApiError(503))).status == 404


def test_what_was_merely_being_dealt_with_lends_nothing():
    seen = evidence_of(during(ApiError(404), RuntimeError("the call after the cache missed")))
    assert (seen.status, first_names(seen)) == (None, [f"{__name__}.ApiError"])
    below = evidence_of(during(raised(KeyError("x"), ApiError(404)), RuntimeError("x")))
    assert below.status is None


def test_a_stage_error_lends_the_hint_of_what_it_was_raised_from():
    error = StageError("rate_limited", "slow down")
    seen = evidence_of(raised(error, ApiError(429, {"Retry-After": "9"})))
    assert (seen.kind, seen.header("retry-after")) == (Kind.RATE_LIMITED, "9")


def test_a_group_is_judged_by_its_first_exception():
    group = ExceptionGroup("two", [ApiError(503), ApiError(404)])
    assert evidence_of(group).status == 503
    assert first_names(evidence_of(group)) == [f"{__name__}.ApiError"]


# -- what a stage says itself ----------------------------------------------------------


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


@pytest.mark.parametrize(
    ("kind", "stated"),
    [
        (OutputInvalid, Kind.INVALID_OUTPUT),
        (OutputTruncated, Kind.TRUNCATED_OUTPUT),
        (OutputRefused, Kind.CONTENT_REFUSED),
    ],
)
def test_an_output_that_cannot_be_used_says_where_and_by_which_rule(kind, stated):
    seen = evidence_of(kind("$.items[3].price", "minimum 0", raw="-7 in the raw output"))
    assert (seen.kind, seen.wait_s) == (stated, None)
    assert seen.facts == (("path", "$.items[3].price"), ("rule", "minimum 0"))
    assert seen.message.endswith(": $.items[3].price: minimum 0")
    assert "-7" not in repr(seen)
    assert stored(seen) == seen


def test_the_place_in_an_output_goes_before_the_facts_of_a_cause():
    refusal = OutputInvalid("$.a", "type number")
    cause = ApiError(503, content=b'{"error": {"retry_after": 3, "message": "busy"}}')
    seen = evidence_of(raised(refusal, cause))
    assert (seen.fact("path"), seen.fact("rule")) == ("$.a", "type number")


def test_an_output_error_that_was_never_finished_is_still_evidence():
    class Hasty(OutputInvalid):
        def __init__(self):
            Exception.__init__(self, "in a hurry")
            self.path, self.rule = 5, "api_key=sk-proj-0123456789abcdef"

    seen = evidence_of(Hasty())
    assert (seen.kind, seen.message) == (None, "in a hurry")
    assert [name for name, _ in seen.facts] == ["rule"]
    assert "0123456789" not in repr(seen)


def test_one_line_is_still_found_here():
    assert one_line(" a\n b ") == "a b"


# -- things that do what they like -----------------------------------------------------


class Cursed:
    """Every look at it raises, and not even an Exception."""

    def __getattribute__(self, name):
        raise SystemExit(name)

    def __eq__(self, other):
        raise KeyboardInterrupt

    __hash__ = None


class CursedError(Exception):
    @property
    def response(self):
        raise RuntimeError("no request was made")

    @property
    def status_code(self):
        raise OSError("closed")

    headers = Cursed()
    body = Cursed()


class CursedKey:
    def __hash__(self):
        return hash("error")

    def __eq__(self, other):
        raise RuntimeError("not comparable")


class Liar(dict):
    """A dict that is none."""

    def __getitem__(self, key):
        raise OSError("closed")

    get = items = keys = values = __iter__ = __len__ = __contains__ = __getitem__


class LongText(str):  # noqa: SLOT000
    def __len__(self):
        raise RuntimeError("too long")

    __getitem__ = __iter__ = split = lower = encode = __len__


class FalseError(Exception):
    def __bool__(self):
        raise RuntimeError("neither")

    __len__ = __bool__

    @property
    def __class__(self):
        raise RuntimeError("no class")


class Twisted(type):
    def __getattribute__(cls, name):
        raise RuntimeError(name)


def test_attributes_that_raise_are_not_there():
    seen = evidence_of(CursedError("text"))
    assert (seen.status, seen.headers, seen.message) == (None, (), "text")


HOSTILE = {
    "a thing": Cursed,
    "an exception": lambda: CursedError("x"),
    "no truth": lambda: FalseError("x"),
    "a cause without truth": lambda: raised(RuntimeError("x"), FalseError("y")),
    "a twisted class": lambda: Twisted("E", (Exception,), {})("x"),
    "a response": lambda: made(response=Cursed()),
    "a key in a response": lambda: made(response={CursedKey(): 1}),
    "a key in a body": lambda: made(body={CursedKey(): 1}),
    "a body": lambda: made(body=Liar(error={"code": "x"})),
    "texts": lambda: made(body=LongText("{}"), code=LongText("x")),
    "headers": lambda: made(headers=Liar(a=1)),
    "links": lambda: made(exceptions=5, __cause__=5, __context__="x"),
    "numbers": lambda: made(errno=Cursed(), sqlstate=Cursed(), diag=Cursed()),
    "a key": lambda: {CursedKey(): 1},
    "an answer": lambda: Liar(choices=[1]),
    "a list": lambda: [Cursed()],
    "an object": object,
    "None": lambda: None,
    "a number": lambda: 5,
}


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_nothing_that_a_thing_does_ends_the_walk(make):
    seen = evidence_of(make())
    assert msgspec.json.encode(seen)
    assert isinstance(seen.message, str)


def test_a_dict_that_lies_is_read_as_what_it_holds():
    assert evidence_of(made(body=Liar(error={"code": "slow_down"}))).codes == ("slow_down",)


def test_a_thing_that_cannot_be_read_at_all_keeps_its_names():
    class Unreadable(Exception):
        __module__ = None

    seen = evidence_of(Unreadable("x"))
    assert seen.names[-1] == "builtins.BaseException"


def test_a_body_of_ten_million_fields_costs_little():
    wide = {f"k{n}": {"retryable": True} for n in range(100_000)}
    deep: dict[str, object] = {}
    for _ in range(5_000):
        deep = {"error": deep}
    for body in (wide, deep, [wide] * 1_000, {"error": {"details": [wide] * 1_000}}):
        seen = evidence_of(made(body=body))
        assert len(seen.facts) <= FACTS_MAX
        assert len(seen.codes) <= CODES_MAX


# -- properties ------------------------------------------------------------------------

texts = st.text(max_size=40)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
names = st.sampled_from([
    "error", "code", "type", "status", "message", "details", "metadata", "retryDelay", "quotaId",
    "retryAfterMs", "resets_at", "reason", "choices", "finish_reason", "usage", "candidates",
])  # fmt: skip
jsons = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names | texts, inner, max_size=5),
    max_leaves=20,
)
headers = st.dictionaries(
    st.sampled_from(["Retry-After", "x-ratelimit-a", "date"]) | texts, texts, max_size=8
)


@st.composite
def errors(draw):
    error = ApiError(
        draw(st.none() | st.integers()),
        draw(headers),
        draw(
            st.none() | st.binary(max_size=60) | jsons.map(lambda value: json.dumps(value).encode())
        ),
        draw(texts),
    )
    for name in draw(st.lists(st.sampled_from(["body", "code", "type", "sqlstate", "usage"]))):
        setattr(error, name, draw(jsons))
    if draw(st.booleans()):
        error.__cause__ = ValueError(draw(texts))
    return error


@given(errors() | jsons | st.binary(max_size=60))
@settings(max_examples=300)
def test_evidence_of_anything_survives_storage_byte_for_byte(thing):
    seen = evidence_of(thing)
    encoded = msgspec.json.encode(seen)
    again = msgspec.json.decode(encoded, type=Evidence)
    assert again == seen
    assert msgspec.json.encode(again) == encoded
    assert len(encoded) < 60_000


def evidence_with(text: str, place: str) -> str:
    """What is kept of an error, or of an answer, that has a text in some place."""
    thing: object
    match place:
        case "text":
            thing = ValueError(f"it failed: {text} (really)")
        case "header":
            thing = ApiError(429, {"x-ratelimit-note": text, "retry-after": text, text: text})
        case "body":
            thing = ApiError(429, {}, text.encode())
        case "message":
            thing = ApiError(429, {}, json.dumps({"error": {"message": text}}).encode(), text=text)
        case "code":
            thing = made(
                body={"error": {"code": text, "type": text, "details": [{"reason": text}]}}
            )
        case "fact":
            thing = made(details={"retryDelay": text, "metadata": {"resets_at": text}})
        case "attribute":
            thing = made(code=text, reason=text, type=text)
        case "answer":
            thing = {"choices": [{"finish_reason": text, "message": {"content": text}}]}
        case _:
            thing = raised(
                RuntimeError("wrapped"), ApiError(500, {"date": text}, text.encode(), text)
            )
    return msgspec.json.encode(evidence_of(thing)).decode()


@given(
    secrets,
    st.sampled_from(
        ["text", "header", "body", "message", "code", "fact", "attribute", "answer", "deep"]
    ),
)
@settings(max_examples=400)
def test_no_secret_gets_into_evidence(secret, place):
    canary, text = secret
    seen, anyway = evidence_with(text, place), evidence_with("", place)
    # Chance may draw the very name of an exception, which is there without any secret.
    assert not [piece for piece in pieces(canary) if piece in seen and piece not in anyway]


def test_evidence_that_was_not_made_safe_would_be_caught():
    encoded = msgspec.json.encode(Evidence(message="password=c4n4ryc4n4ry")).decode()
    assert [piece for piece in pieces("c4n4ryc4n4ry") if piece in encoded]

"""An upstream's own error codes, from a real server through a real client: what a worker and a call make of them.

The table is [004]'s, cell by cell: code by profile, how many calls, which waits, and how it ends.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from perdure import App, JobFailed, Policy, Vocabulary
from perdure.model.kinds import Kind
from perdure.model.nouns import replace
from perdure.model.outcomes import Evidence
from perdure.rules.classify import classify_evidence
from perdure.rules.policy import FAIL, RETRY, Hints, Rule
from perdure.rules.policy_form import policy_from
from perdure.rules.presets import preset
from perdure.rules.vocabulary import GATEWAY
from perdure.testing import HANGING, Answer
from tests.app.worker.working_off import worked_off
from tests.engine import answering
from tests.engine.answering import Gateway, Told, asking, called, worked
from tests.engine.kit import PLAIN

WORKER, COSTLY, SYNC = (preset(f"gateway-{name}") for name in ("worker", "costly", "sync"))
FIRST, SECOND, SOON = (0.8, 1.2), (1.6, 2.4), (0.3, 0.8)  # of waits: the least and the most


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with answering.gateway() as running:
        yield running


def body(code: str, **more: Any) -> dict[str, Any]:
    """The error object of [004]."""
    return {"error": {"id": "req-1", "code": code, "message": "no", "provider": "acme", **more}}


def told(gateway: Gateway, policy: Policy, *answers: Answer) -> Told:
    gateway.script(*answers)
    send = called if policy.profile == "sync" else worked
    return send(gateway, policy, asking(gateway))


# code and profile: calls, the bounds of each wait, the end
MATRIX = {
    ("RATE_LIMITED", "worker"): (3, [FIRST, SECOND], "exhausted"),
    ("RATE_LIMITED", "costly"): (2, [FIRST], "exhausted"),
    ("RATE_LIMITED", "sync"): (1, [], "handed over"),
    ("INVALID_UPSTREAM_RESPONSE", "worker"): (3, [FIRST, SECOND], "exhausted"),
    ("INVALID_UPSTREAM_RESPONSE", "costly"): (2, [FIRST], "exhausted"),
    ("INVALID_UPSTREAM_RESPONSE", "sync"): (2, [SOON], "handed over"),
    ("TIMEOUT", "worker"): (3, [FIRST, SECOND], "exhausted"),
    ("TIMEOUT", "costly"): (2, [FIRST], "exhausted"),
    ("TIMEOUT", "sync"): (2, [SOON], "handed over"),
    ("UPSTREAM_UNAVAILABLE", "worker"): (3, [FIRST, SECOND], "exhausted"),
    ("UPSTREAM_UNAVAILABLE", "costly"): (2, [FIRST], "exhausted"),
    ("UPSTREAM_UNAVAILABLE", "sync"): (2, [SOON], "handed over"),
    ("UPSTREAM_ERROR", "worker"): (3, [FIRST, SECOND], "exhausted"),
    ("UPSTREAM_ERROR", "costly"): (2, [FIRST], "exhausted"),
    ("UPSTREAM_ERROR", "sync"): (2, [SOON], "handed over"),
    ("CONFIG_MISSING", "worker"): (1, [], "fatal"),
    ("CONFIG_MISSING", "costly"): (1, [], "fatal"),
    ("CONFIG_MISSING", "sync"): (1, [], "fatal"),
    ("INVALID_REQUEST", "worker"): (1, [], "fatal"),
    ("INVALID_REQUEST", "costly"): (1, [], "fatal"),
    ("INVALID_REQUEST", "sync"): (1, [], "fatal"),
    ("INTERNAL_ERROR", "worker"): (2, [FIRST], "exhausted"),
    ("INTERNAL_ERROR", "costly"): (2, [FIRST], "exhausted"),
    ("INTERNAL_ERROR", "sync"): (1, [], "fatal"),
    ("UNKNOWN", "worker"): (2, [FIRST], "exhausted"),
    ("UNKNOWN", "costly"): (2, [FIRST], "exhausted"),
    ("UNKNOWN", "sync"): (1, [], "fatal"),
}
# Whatever the status says: an error of the server's, of the caller's, one that the document excepts, or none.
STATUSES = (500, 400, 501, 200)


def check(found: Told, code: str, cell: tuple[int, list[tuple[float, float]], str]) -> None:
    calls, bounds, end = cell
    assert (found.calls, len(found.waits_s)) == (calls, len(bounds)), found
    for wait_s, (least, most) in zip(found.waits_s, bounds, strict=True):
        assert least <= wait_s <= most
    if end == "handed over":
        assert (found.state, found.reason) == ("handed_over", None), found
    else:
        assert (found.state, found.reason) == ("failed", end), found
    assert (found.code, set(found.codes)) == (code, {code})


def test_the_matrix_has_every_code_and_every_profile():
    assert {code for code, _ in MATRIX} == set(GATEWAY.kinds)
    assert len(MATRIX) == 27


@pytest.mark.parametrize(("code", "profile"), MATRIX)
def test_a_gateway_s_code_decides_whatever_the_status(gateway, code, profile):
    for status in STATUSES:
        found = told(gateway, preset(f"gateway-{profile}"), Answer(status, body(code)))
        check(found, code, MATRIX[code, profile])


@pytest.mark.parametrize(("code", "profile"), MATRIX)
def test_a_server_that_says_retry_never_overrules_a_known_code(gateway, code, profile):
    said = Answer(500, body(code, retryable=True))
    check(told(gateway, preset(f"gateway-{profile}"), said), code, MATRIX[code, profile])


# Their flag is false by default, so that a false one is no news: decision 0042.
FLAGGED_ANYWAY = ("INTERNAL_ERROR", "UNKNOWN")


@pytest.mark.parametrize(("code", "profile"), MATRIX)
def test_a_server_that_says_do_not_retry_stops_unless_it_must_say_so(gateway, code, profile):
    said = Answer(503, body(code, retryable=False))
    cell = MATRIX[code, profile] if code in FLAGGED_ANYWAY else (1, [], "fatal")
    check(told(gateway, preset(f"gateway-{profile}"), said), code, cell)


def test_a_policy_that_does_not_heed_the_server_goes_by_the_code_alone(gateway):
    deaf = replace(WORKER, heed_server=False, rules=dict(WORKER.rules))
    found = told(gateway, deaf, Answer(503, body("UPSTREAM_ERROR", retryable=False)))
    check(found, "UPSTREAM_ERROR", MATRIX["UPSTREAM_ERROR", "worker"])


@pytest.mark.parametrize("status", [429, 503, 200])
def test_the_wait_of_a_rate_limit_is_a_floor_in_the_worker_whatever_the_status(gateway, status):
    said = Answer(status, body("RATE_LIMITED", retryAfterMs=7_000))
    found = told(gateway, WORKER, said)
    assert (found.calls, found.waits_s, found.code) == (3, (7.0, 7.0), "RATE_LIMITED")
    short = told(gateway, WORKER, Answer(status, body("RATE_LIMITED", retryAfterMs=1)))
    check(short, "RATE_LIMITED", MATRIX["RATE_LIMITED", "worker"])


@pytest.mark.parametrize("status", [429, 503, 200])
def test_the_wait_of_a_rate_limit_is_when_a_call_s_job_is_due(gateway, status):
    found = told(gateway, SYNC, Answer(status, body("RATE_LIMITED", retryAfterMs=7_000)))
    assert (found.calls, found.state, found.due_in_s) == (1, "handed_over", 7.0)


def test_an_error_object_without_an_envelope_is_read_too(gateway):
    bare = Answer(500, body("CONFIG_MISSING", retryable=False)["error"])
    check(told(gateway, WORKER, bare), "CONFIG_MISSING", (1, [], "fatal"))


@pytest.mark.parametrize("status", STATUSES)
def test_what_is_stored_of_an_answer_can_be_judged_again_by_its_code(gateway, status):
    told(gateway, PLAIN, Answer(status, body("CONFIG_MISSING", retryable=True)))
    place = gateway.place("worker at one", "one")
    job = max(place.reader.jobs(), key=lambda one: one.no)
    for attempt in place.reader.attempts(job.no):
        evidence = msgspec.json.decode(attempt.evidence_json, type=Evidence)
        again = classify_evidence(evidence, now=attempt.settled_at, vocabulary=GATEWAY)
        assert (again.kind, again.rule) == (Kind.CONFIG_MISSING, "gateway code CONFIG_MISSING")


# -- whose codes they are ------------------------------------------------------------------


def test_the_name_of_one_of_our_kinds_is_never_read_from_an_answer(gateway):
    for policy in (WORKER, OWN[0]):
        plain = told(gateway, policy, Answer(503, body("e1")))
        assert told(gateway, policy, Answer(503, body("internal"))).codes == plain.codes
    assert [
        kind for kind in Kind if GATEWAY.meaning_of((kind.value,)) or ACME.meaning_of((kind.value,))
    ] == []


def test_a_policy_whose_vocabulary_no_upstream_speaks_reads_none_of_its_codes(gateway):
    mute = replace(GATEWAY, wire=False)
    policy = replace(WORKER, vocabulary=mute, rules=dict(WORKER.rules))
    assert told(gateway, policy, Answer(500, body("CONFIG_MISSING"))).code == "UPSTREAM_ERROR"
    assert told(gateway, PLAIN, Answer(500, body("CONFIG_MISSING"))).code == "upstream_error"


ACME = Vocabulary("acme", kinds={"E_BUSY": Kind.OVERLOADED, "E_KEY": Kind.AUTH}, wire=True)
IN_TOML = {
    "name": "own",
    "attempts_max": 2,
    "rules": {"overloaded": "retry"},
    "vocabulary": {
        "name": "acme",
        "kinds": {"E_BUSY": "overloaded", "E_KEY": "auth"},
        "wire": True,
    },
}
OWN = [
    Policy("own", attempts_max=2, rules={Kind.OVERLOADED: RETRY}, vocabulary=ACME),
    policy_from(IN_TOML),
]


@pytest.mark.parametrize("own", OWN, ids=["python", "toml"])
def test_a_user_s_own_wire_vocabulary_is_read_in_worker_and_call_alike(gateway, own):
    busy, key = Answer(400, body("E_BUSY")), Answer(500, body("E_KEY"))
    found = told(gateway, own, busy)
    assert (found.calls, found.code, found.reason) == (2, "overloaded", "exhausted")
    found = told(gateway, own, key)
    assert (found.calls, found.code, found.reason) == (1, "auth", "fatal")
    for answer, calls, state, code in (
        (busy, 2, "handed_over", "overloaded"),
        (key, 1, "failed", "auth"),
    ):
        gateway.script(answer)
        found = called(gateway, SYNC, asking(gateway), own=own)
        assert (found.calls, found.state, found.code) == (calls, state, code)


def test_a_user_s_match_that_names_more_than_the_status_goes_before_the_wire(gateway):
    match = {"kind": "timeout", "code": "CONFIG_MISSING", "status": 500}
    form = {
        "name": "own",
        "rules": {"timeout": "retry"},
        "matches": [match],
        "vocabulary": "gateway",
    }
    assert told(gateway, policy_from(form), Answer(500, body("CONFIG_MISSING"))).code == "TIMEOUT"
    match.pop("code")
    found = told(gateway, policy_from(form), Answer(500, body("CONFIG_MISSING")))
    assert found.code == "CONFIG_MISSING"


def test_an_app_s_worker_and_its_call_agree_about_a_code(gateway, tmp_path):
    app = App(f"sqlite:///{tmp_path / 'work.db'}")
    gateway.script(Answer(500, body("CONFIG_MISSING")))
    pipe = app.pipeline("p", app.stage(policy="gateway-worker")(asking(gateway)))
    pipe.enqueue(1)
    worked_off(app)
    with pytest.raises(JobFailed):
        pipe.call(2, wait_s=30.0)
    codes = [one.error_code for one in app._session.opened.reader.jobs()]
    assert (codes, len(gateway.upstream.requests)) == (["CONFIG_MISSING"] * 2, 2)
    app.close()


STANDARD = preset("standard")
GOOGLE = {"error": {"code": 500, "status": "UNKNOWN", "message": "An unknown error"}}


@pytest.mark.parametrize("own", [STANDARD, preset("converter")], ids=lambda own: own.name)
@pytest.mark.parametrize("said", [*map(body, GATEWAY.kinds), GOOGLE], ids=str)
def test_a_call_that_names_no_policy_judges_an_answer_as_its_worker_does(gateway, own, said):
    gateway.script(Answer(500, said))
    at_work = worked(gateway, own, asking(gateway))
    gateway.script(Answer(500, said))
    found = called(gateway, SYNC, asking(gateway), own=own, named=False)
    assert (found.kind, found.calls, found.state) == (at_work.kind, 2, "handed_over")


def test_an_app_s_default_call_reads_no_codes_that_its_stage_does_not_know(gateway, tmp_path):
    app = App(f"sqlite:///{tmp_path / 'work.db'}")
    pipe = app.pipeline("p", app.stage(policy="standard")(asking(gateway)))
    gateway.script(Answer(500, body("CONFIG_MISSING")))
    assert pipe.call(1).handed_over
    with pytest.raises(JobFailed):
        pipe.call(2, policy="gateway-sync")
    assert [one.error_kind for one in app._session.opened.reader.jobs()] == [
        "config_missing",
        "upstream_error",
    ]
    app.close()


def test_a_policy_that_a_caller_has_named_is_read_where_the_stage_s_words_are_not_for_a_wire(
    gateway,
):
    said = Answer(500, body("CONFIG_MISSING"))
    gateway.script(said)
    found = called(gateway, SYNC, asking(gateway), own=preset("converter"))
    assert (found.calls, found.kind, found.code) == (1, "config_missing", "UNKNOWN")
    gateway.script(said)
    found = called(gateway, SYNC, asking(gateway), own=OWN[0])  # which reads its own, and only them
    assert (found.calls, found.kind, found.state) == (2, "upstream_error", "handed_over")


LISTS = [(503, "overloaded"), ("overloaded", "httpx.HTTPStatusError"), ("overloaded",)]


@pytest.mark.parametrize("names", LISTS, ids=str)
def test_a_list_asks_only_for_the_kind_that_a_code_names(gateway, names):
    policy = Policy("own", attempts_max=2, retriable=names, vocabulary=ACME)
    key = told(gateway, policy, Answer(503, body("E_KEY")))
    assert (key.calls, key.kind, key.reason) == (1, "auth", "fatal")
    busy = told(gateway, policy, Answer(400, body("E_BUSY")))
    assert (busy.calls, busy.kind, busy.reason) == (2, "overloaded", "exhausted")


FINER = {"innererror": {"code": "INVALID_REQUEST"}}, {"error_code": "INVALID_REQUEST"}


@pytest.mark.parametrize("finer", FINER, ids=str)
def test_the_error_s_own_code_goes_before_finer_ones(gateway, finer):
    found = told(gateway, WORKER, Answer(400, body("UPSTREAM_ERROR", **finer)))
    check(found, "UPSTREAM_ERROR", MATRIX["UPSTREAM_ERROR", "worker"])
    found = told(gateway, WORKER, Answer(500, body("odd", **finer)))
    check(found, "INVALID_REQUEST", (1, [], "fatal"))


def test_an_error_object_that_a_framework_has_wrapped_is_read_too(gateway):
    said = {"detail": body("CONFIG_MISSING")}
    check(told(gateway, WORKER, Answer(500, said)), "CONFIG_MISSING", (1, [], "fatal"))
    said = {"detail": body("RATE_LIMITED") | {"retryAfterMs": 7_000}}
    assert told(gateway, WORKER, Answer(500, said)).waits_s == (7.0, 7.0)


# -- [001]'s gateway -----------------------------------------------------------------------

CONVERTER = preset("converter")
WAITS = [(5.0, 10.0), (10.0, 15.0)]


def test_the_converter_calls_a_gateway_that_answers_400_once(gateway):
    check(told(gateway, CONVERTER, Answer(400, {"error": "no"})), "GW_4XX", (1, [], "fatal"))


def test_the_converter_spaces_its_retries_of_a_502(gateway):
    check(told(gateway, CONVERTER, Answer(502, "bad")), "GW_5XX", (3, WAITS, "exhausted"))


def test_the_converter_spaces_its_retries_of_a_gateway_that_does_not_answer(gateway):
    gateway.script(HANGING)
    found = worked(gateway, CONVERTER, asking(gateway, read_s=0.05))
    check(found, "GW_TIMEOUT", (3, WAITS, "exhausted"))


def test_the_converter_does_not_take_a_gateway_s_words_for_its_own(gateway):
    found = told(gateway, CONVERTER, Answer(502, body("NOT_PDF")))
    check(found, "GW_5XX", (3, WAITS, "exhausted"))


def test_a_rule_of_a_policy_hears_the_wait_of_the_kind_that_a_code_names(gateway):
    hints = Hints(kinds=frozenset({Kind.OVERLOADED}))
    policy = replace(OWN[0], rules={Kind.OVERLOADED: Rule("retry", hint=hints)}, otherwise=FAIL)
    found = told(gateway, policy, Answer(500, body("E_BUSY", retryAfterMs=9_000)))
    assert found.waits_s == (9.0,)

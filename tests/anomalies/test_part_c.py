"""Mistakes of real systems that had rules much like ours, and a test of each that we do not share it.

Half of one is shared by choice: a server's own word on retrying goes above what its status lets us guess, though
never above a code that is known. The tests (gateway 2) show what bounds it.

=========== ============================================================ ==================================
system      the mistake                                                  shown by
=========== ============================================================ ==================================
reports 1   a dead worker's job is never claimed again                   ``test_reports_1…``
reports 2   counting at the claim forbids to save the last attempt       ``test_reports_2…``
reports 3   a result that could not be written at once is a failure      ``test_reports_3…``
reports 4   other layers try again beneath the policy                    ``test_reports_4…``
reports 5   a timeout has three sources                                  ``test_reports_5…``
reports 6   a job that waits to be tried again hides its error           ``test_reports_6…``
converter 1 SIGTERM drops the job                                        ``ELSEWHERE``
converter 2 a lease is never renewed, and a late result is believed      ``test_converter_2…``
converter 3 a failed job blocks its own repetition                       ``test_converter_3…``
converter 4 unknown statuses become 5xx, and new public codes slip out   ``test_converter_4…``
converter 5 a setting that nobody reads; a poll of five seconds          ``test_converter_5…``
samples 1   dead letters are counted and thrown away                     ``test_samples_1…``
samples 2   on one of two paths, failed items vanish                     ``test_samples_2…``
samples 3   an exception that is raised is not tried again               ``test_samples_3…``
samples 4   nobody can look at dead letters                              ``test_samples_4…``, ``ELSEWHERE``
verifier 1  retries and new work are not in one order                    ``test_verifier_1…``
verifier 2  waits that a server asked for have no bound                  ``test_verifier_2…``
verifier 3  nothing ever counts as a rate limit; one 503 is the end      ``test_verifier_3…``
verifier 4  a retry that falls due wakes nobody                          ``test_verifier_4…``
verifier 5  a job that runs still looks due; a fault makes a hot loop    ``test_verifier_5…``
gateway 1   the method of the request decides whether a call is repeated ``test_gateway_1…``
gateway 2   the server's flag beats the table; a proxy's 404 is retried  ``test_gateway_2…``
gateway 3   a decision is made twice, and the second one loses the hint  ``test_gateway_3…``
gateway 4   Retry-After is read in one strategy only                     ``test_gateway_4…``
=========== ============================================================ ==================================
"""

import ast
import asyncio
import re
import sqlite3
import urllib.error
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import format_datetime
from http.client import HTTPConnection
from pathlib import Path

import pytest

from perdure import App, Policy, StageError
from perdure.config import SETTINGS, load
from perdure.engine.attempt.threads import Threads
from perdure.engine.observe import Observers
from perdure.engine.run import Stopping, run
from perdure.engine.stages import Catalogue
from perdure.engine.worker.loop import Loop
from perdure.model.errors import StoreUnavailable
from perdure.model.events import EventName
from perdure.model.filters import DEAD_LETTERS
from perdure.model.jobs import ClaimOrder, Counters, Stale
from perdure.model.kinds import Kind
from perdure.model.outcomes import Raised, TimedOut
from perdure.model.states import FailedReason, State
from perdure.model.verdicts import Failure
from perdure.model.workers import NewWorker, Role
from perdure.rules.backoff import Backoff, Jitter
from perdure.rules.classify import classify
from perdure.rules.evidence import evidence_of
from perdure.rules.explain import Explanation, Question, explain
from perdure.rules.policy import FAIL, RETRY
from perdure.rules.presets import PRESETS, preset
from perdure.rules.vocabulary import CONVERTER, GATEWAY
from perdure.testing import Answer as Said, Upstream
from perdure.testing.store_contract.attempt_ends import retry, success
from perdure.testing.store_contract.fresh_store import TTL_S
from tests.app.worker.working_off import pumped_off, worked_off
from tests.engine.kit import DONE, Notes, Shop, line_on, stage
from tests.engine.upkeep.upkeeping import upkeep

ROOT = Path(__file__).parents[2]
NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
AT_ONCE = Policy(
    "at once",
    attempts_max=4,
    backoff=Backoff("fixed", base_s=0.0),
    jitter=Jitter("none"),
    otherwise=RETRY,
)
ONCE = Policy("once", attempts_max=1, otherwise=FAIL)

ELSEWHERE = {
    "converter 1": [
        ("tests/stories/test_drain.py", "test_a_stage_shorter_than_the_grace_is_finished_and_nothing_new_is_begun"),
        ("tests/stories/test_drain.py", "test_a_stage_longer_than_the_grace_is_given_back_and_counts_nothing"),
        ("tests/engine/worker/test_pump.py", "test_what_is_given_back_counts_only_as_a_release"),
    ],
    "samples 4": [
        ("tests/engine/operate/test_bulks.py", "test_all_dead_letters_are_driven_again_whatever_the_pages"),
        ("tests/engine/operate/test_bulks.py", "test_dead_letters_are_discarded_and_stay_in_the_books"),
        ("tests/surfaces/cli/test_cli.py", "test_jobs_are_listed_by_state_and_pipeline_and_page"),
    ],
}  # fmt: skip


def names_in(file: str) -> set[str]:
    tree = ast.parse((ROOT / file).read_text())
    return {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef)}


@pytest.mark.parametrize("item", ELSEWHERE)
def test_what_is_shown_elsewhere_is_still_shown_there(item):
    assert [name for file, name in ELSEWHERE[item] if name not in names_in(file)] == []


def test_every_mistake_of_the_table_has_its_test():
    counts = {"reports": 6, "converter": 5, "samples": 4, "verifier": 5, "gateway": 4}
    items = {f"{system} {n + 1}" for system, count in counts.items() for n in range(count)}
    shown = set()
    for name in names_in(str(Path(__file__).relative_to(ROOT))):
        if found := re.match(r"test_([a-z]+)_(\d)_", name):
            shown.add(f"{found[1]} {found[2]}")
    assert shown | set(ELSEWHERE) == items
    assert set(re.findall(r"^([a-z]+ \d) ", __doc__ or "", re.MULTILINE)) == items


# -- words for the tests -------------------------------------------------------------------


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.close()


@pytest.fixture
def app(tmp_path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path / 'work.db'}")
    yield app
    app.close()


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


def http_error(status: int, **headers: str) -> urllib.error.HTTPError:
    """What Python's own client raises."""
    message = Message()
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    return urllib.error.HTTPError("http://upstream/ask", status, "no", message, None)


class Refusal(Exception):
    """What a client with a body raises."""

    def __init__(self, status: int, body: object) -> None:
        super().__init__("refused")
        self.status_code = status
        self.body = body


def asked(upstream: Upstream, method: str = "POST") -> str:
    """One request, and what a client makes of the answer."""
    with closing(HTTPConnection(upstream.host, upstream.port, timeout=20)) as line:
        line.request(method, "/ask", b"{}")
        answer = line.getresponse()
        text = answer.read().decode()
    if answer.status >= 400:
        raise http_error(answer.status)
    return text


def meaning(error: BaseException, policy: str = "standard") -> Failure:
    judge = preset(policy)
    verdict = classify(
        Raised(evidence_of(error)), now=NOW, matches=judge.matches, vocabulary=judge.vocabulary
    )
    assert isinstance(verdict, Failure)
    return verdict


def advice(policy: str, failed: Failure, **where: int) -> Explanation:
    return explain(preset(policy), Question(failed, **where))


# -- reports -------------------------------------------------------------------------------


def test_reports_1_a_dead_worker_s_job_is_found_though_it_is_not_queued(shop):
    place = shop.place
    judge, silent = place.hire(), place.hire()
    id = place.put().id
    (claim,) = place.take(silent)
    assert place.take(judge) == []
    place.live([judge], TTL_S * 4 / 3)
    assert upkeep(place, judge).once() == 1
    assert place.see(id).state is State.QUEUED
    place.clock.push(60)
    (again,) = place.take(judge, isolation=1)
    assert (again.id, again.token > claim.token) == (id, True)
    place.clean()


def test_reports_2_a_crash_on_the_last_attempt_is_settled_and_breaks_no_rule(shop):
    place = shop.place
    known = Catalogue([line_on(place, stage("one", policy=preset("reports")), stage("two"))])
    judge, silent = place.hire(), place.hire()
    id = place.put().id
    for _ in range(3):
        (claim,) = place.take(silent)
        place.settle(retry(claim, silent, delay_s=0.0), by=silent)
    assert place.take(silent)[0].counters == Counters(starts=4, failures=3)
    place.live([judge], TTL_S * 4 / 3)
    assert upkeep(place, judge, catalogue=known).once() == 1
    job = place.see(id)
    assert (job.state, job.failed_reason) == (State.FAILED, FailedReason.EXHAUSTED)
    assert (job.counters.failures, job.counters.crashes) == (4, 1)
    place.clean()


@pytest.mark.parametrize("fault", ["before", "after"])
def test_reports_3_a_result_that_cannot_be_written_at_once_is_sent_again_and_is_no_failure(fault):
    shop = Shop(stage("one"))
    id = shop.place.put().id
    shop.pump.once()
    shop.finish_all(DONE)
    shop.store.breaks = [fault]
    with pytest.raises(StoreUnavailable):
        shop.pump.once()
    shop.pump.once()
    job = shop.place.see(id)
    assert (job.state, job.counters) == (State.SUCCEEDED, Counters(starts=1))
    assert len(shop.started) == 1
    shop.place.clean()
    shop.close()


@pytest.mark.parametrize("fault", ["before", "after"])
def test_reports_3_a_blip_at_the_last_write_leaves_the_rows_and_the_success_or_neither(
    app, tmp_path, fault
):
    faults, begun = [fault], []

    @app.stage(policy=AT_ONCE)
    def save(item, context):
        begun.append(item)
        with closing(sqlite3.connect(tmp_path / "work.db", timeout=30)) as cx:
            cx.execute("INSERT INTO reports VALUES (?)", (item,))
            context.complete("saved", within=cx)
            blip = faults.pop() if faults else None
            if blip != "before":
                cx.commit()
            if blip is not None:
                raise ConnectionError("the line broke at the last write")

    job = app.pipeline("p", save).enqueue(1)
    with closing(sqlite3.connect(tmp_path / "work.db", timeout=30)) as cx:
        cx.execute("CREATE TABLE reports (n)")
        pumped_off(app)
        assert cx.execute("SELECT n FROM reports").fetchall() == [(1,)]
    assert job.result() == "saved"
    assert len(begun) == (2 if fault == "before" else 1)


def test_reports_4_there_is_one_request_for_each_attempt_of_the_policy_and_no_more(app, upstream):
    upstream.script(Said(503, {"error": "busy"}))

    @app.stage(policy=AT_ONCE)
    def ask(item):
        return asked(upstream)

    job = app.pipeline("p", ask).enqueue(1)
    worked_off(app)
    assert job.view().failed_reason is FailedReason.EXHAUSTED
    assert len(upstream.requests) == len(app._session.opened.reader.attempts(job.view().no)) == 4


def test_reports_5_a_stage_s_timeout_has_one_source(app):
    @app.stage(timeout_s=0.05)
    async def slow(item, context):
        assert context.time_left_s() <= 0.05
        await asyncio.sleep(60)

    app.pipeline("p", slow).enqueue(1)
    app.ready()
    store = app._session.opened.store
    worker = store.add_worker(NewWorker("test", "test", Role.MAIN, 60.0))
    (claim,) = store.turn(
        [], ClaimOrder(worker, 1, app._session.catalogue.lane_nos()), by=worker
    ).claims
    declared = app._session.catalogue.pipeline("p").stage("slow")
    assert asyncio.run(run(claim, declared, Threads(1), Stopping())) == TimedOut(0.05)
    assert set(app._session.catalogue.timeouts_s().values()) == {
        0.05
    }  # what hangs is ended by the same
    assert [one.name for one in SETTINGS if "timeout" in one.name] == []


def test_reports_6_a_job_that_waits_to_be_tried_again_shows_why_how_often_and_when(shop):
    id = shop.place.put().id
    shop.pump.once()
    shop.finish_all(Raised(evidence_of(http_error(503))))
    shop.pump.once()
    job = shop.place.see(id)
    assert (job.shown_state, job.counters.failures) == ("retrying", 1)
    assert job.error_kind == "upstream_unavailable"
    assert job.error_message
    assert job.due_at == shop.clock.now() + timedelta(seconds=10)


# -- converter -----------------------------------------------------------------------------


def test_converter_2_a_live_worker_keeps_its_job_and_a_late_result_is_refused(shop):
    place = shop.place
    judge, holder = place.hire(), place.hire()
    id = place.put().id
    (claim,) = place.take(holder)
    place.live([judge, holder], 3 * TTL_S)
    assert upkeep(place, judge).once() == 0
    assert place.see(id).worker == holder
    began_at = place.see(id).claimed_at
    place.live([judge], TTL_S * 4 / 3)  # now its beats stop
    assert upkeep(place, judge).once() == 1
    place.clock.push(60)
    other = place.hire()
    (again,) = place.take(other, isolation=1)
    (late,) = place.settle(success(claim, other), by=other)  # alive, but not the holder of this
    assert isinstance(late, Stale)
    assert place.see(id).token == again.token
    (attempt,) = place.reader.attempts(again.no)
    assert attempt.claimed_at == began_at  # a second start does not overwrite the first
    place.clean()


def test_converter_3_a_failed_job_can_be_asked_for_again_by_its_key(app):
    fails = [True]

    @app.stage(policy=ONCE)
    def convert(item):
        if fails.pop():
            raise ValueError("no")
        return item

    pipe = app.pipeline("p", convert)
    first = pipe.enqueue("file", key="sha256")
    worked_off(app)
    assert first.view().state is State.FAILED
    fails.append(False)
    assert pipe.enqueue("file", key="sha256").view().state is State.FAILED
    again = pipe.enqueue("file", key="sha256", if_failed="retry")
    worked_off(app)
    assert (again.id, again.view().state) == (first.id, State.SUCCEEDED)


def test_converter_4_every_status_has_one_of_the_ten_codes_and_no_4xx_is_a_5xx():
    codes = {
        status: advice("converter", meaning(http_error(status))).code for status in range(400, 600)
    }
    assert set(codes.values()) <= set(CONVERTER.kinds)
    assert [status for status in range(400, 500) if codes[status] == "GW_5XX"] == []
    assert (codes[404], codes[422], codes[429], codes[503]) == (
        "GW_4XX",
        "GW_4XX",
        "GW_4XX",
        "GW_5XX",
    )
    assert len(CONVERTER.kinds) == 10
    assert set(CONVERTER.internal.values()) <= set(CONVERTER.kinds)


def test_converter_5_the_number_of_jobs_at_once_is_kept_and_the_poll_is_a_second_or_two():
    assert load({"PERDURE_CONCURRENCY": "3"}).concurrency == 3
    assert 1.0 <= load({}).poll_s <= 2.0
    shop = Shop(stage("one"), concurrency=3)
    shop.place.put_many(10)
    for _ in range(5):
        shop.pump.once()
    assert (len(shop.running), shop.most) == (3, 3)
    shop.close()


# -- samples -------------------------------------------------------------------------------


def failing_in_the_second_stage(app: App) -> list[str]:
    """Three items, one of which fails in the second stage."""

    @app.stage
    def first(item):
        return item

    @app.stage(policy=ONCE)
    def second(item):
        if item == "bad":
            raise ValueError("bad")
        return item

    jobs = app.pipeline("p", first, second).enqueue_many(["good", "bad", "fine"])
    worked_off(app)
    return [one.id for one in jobs]


def test_samples_1_a_dead_letter_is_kept_whole_with_the_stage_that_failed(app):
    ids = failing_in_the_second_stage(app)
    (dead,) = app._session.opened.reader.jobs(DEAD_LETTERS)
    assert (dead.id, dead.stage, dead.payload_json) == (ids[1], "second", '"bad"')
    assert dead.failed_reason is FailedReason.FATAL
    assert [one.stage for one in app._session.opened.reader.attempts(dead.no)] == [
        "first",
        "second",
    ]


def test_samples_2_whatever_becomes_of_an_item_it_is_in_the_books(app):
    @app.stage(policy=ONCE, timeout_s=0.05)
    async def sometimes(item):
        if item == "slow":
            await asyncio.sleep(60)
        if item == "bad":
            raise ValueError("bad")
        return item

    app.pipeline("p", sometimes).enqueue_many(["good", "slow", "bad"] * 3)
    worked_off(app)
    books = app._session.opened.reader.books()
    assert (books.accepted, books.succeeded, books.failed, books.queued) == (9, 3, 6, 0)
    assert books.balanced
    kinds = {job.error_kind for job in app._session.opened.reader.jobs(DEAD_LETTERS)}
    assert kinds == {"timeout", "unknown"}


@pytest.mark.parametrize(
    "error",
    [ValueError("odd"), SystemExit(1), KeyboardInterrupt(), ExceptionGroup("both", [OSError()])],
)
def test_samples_3_what_a_stage_raises_is_tried_again_like_what_it_returns(app, error):
    calls = []

    @app.stage(policy=AT_ONCE)
    def raises(item):
        calls.append(item)
        if len(calls) == 1:
            raise error
        return "done"

    job = app.pipeline("p", raises).enqueue(1)
    worked_off(app)
    assert (job.view().state, len(calls)) == (State.SUCCEEDED, 2)


def test_samples_4_dead_letters_are_found_by_reason_stage_and_text(app):
    ids = failing_in_the_second_stage(app)
    (group,) = app._session.opened.reader.failures()
    assert (group.stage, group.count) == ("second", 1)
    assert [one.id for one in app._session.opened.reader.jobs(DEAD_LETTERS)] == [ids[1]]


# -- verifier ------------------------------------------------------------------------------


def test_verifier_1_a_due_retry_and_new_work_are_served_in_the_order_in_which_they_came(shop):
    place = shop.place
    worker = place.hire()
    middle = [place.put().id for _ in range(2)]
    (claim,) = place.take(worker)
    place.settle(retry(claim, worker, delay_s=5.0), by=worker)
    place.clock.push(1)
    late = place.put().id
    assert place.taken_ids(worker) == [middle[1]]  # the retry is not due, and keeps nobody waiting
    place.clock.push(5)
    assert place.taken_ids(worker, 2) == [middle[0], late]


def test_verifier_2_waits_that_a_server_asks_for_are_not_counted_and_have_an_end():
    limited = Failure(Kind.RATE_LIMITED, "test", hint_s=53.0)
    assert not advice("verifier", limited, attempt=8, waits=20).counted
    assert advice("verifier", limited, attempt=1, waits=20).action == "retry"
    assert advice("verifier", limited, attempt=1, waits=21).failed_reason == "exhausted"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (http_error(429), "rate_limited"),
        (http_error(500), "retryable"),
        (http_error(503), "retryable"),
        (ConnectionResetError(104, "reset"), "retryable"),
        (urllib.error.URLError(ConnectionRefusedError(111, "refused")), "retryable"),
        (TimeoutError("slow"), "retryable"),
        (http_error(404), "final"),
    ],
    ids=str,
)
def test_verifier_3_rate_limits_are_seen_and_no_single_5xx_or_network_fault_is_the_end(error, code):
    answer = advice("verifier", meaning(error))
    assert (answer.code, answer.action) == (code, "fail" if code == "final" else "retry")


def test_verifier_4_a_retry_that_falls_due_is_started_without_any_new_work():
    shop = Shop(stage("one"))
    shop.place.put()
    shop.pump.once()
    shop.finish_all(Raised(evidence_of(http_error(503))))
    wait_s = shop.pump.once()
    assert wait_s == 10.0  # how long the pump rests, at most
    assert not shop.running
    shop.clock.push(wait_s)
    shop.pump.once()
    assert len(shop.running) == 1
    shop.close()


def test_verifier_5_a_running_retry_is_not_due_any_more_and_a_lasting_fault_is_no_hot_loop(shop):
    place = shop.place
    worker, other = place.hire(), place.hire()
    id = place.put().id
    (claim,) = place.take(worker)
    place.settle(retry(claim, worker, delay_s=0.0), by=worker)
    assert place.taken_ids(worker) == [id]
    assert (place.see(id).ready, place.take(other)) == (False, [])

    def broken() -> float:
        raise StoreUnavailable("no such table")

    notes = Notes()
    loop = Loop(
        broken,
        changed=lambda: False,
        tick_s=0.01,
        ended=lambda _: None,
        observers=Observers([notes]),
    )
    assert [loop._turn() >= 0.5 for _ in range(3)] == [True] * 3
    assert notes.names() == [EventName.STORE_AWAY]


# -- gateway -------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_gateway_1_the_one_retry_of_a_call_is_made_whatever_the_method(app, upstream, method):
    upstream.script(Said(503, {"error": "busy"}), Said(200, {"text": "hi"}))

    @app.stage
    def ask(item):
        return asked(upstream, method)

    called = app.pipeline("p", ask).call(1, wait_s=30.0)
    assert called.done
    assert [one.method for one in upstream.requests] == [method] * 2


PROXY_PAGE = "<html><head><title>404 Not Found</title></head><body>nginx</body></html>"


@pytest.mark.parametrize("policy", ["gateway-worker", "gateway-sync", "standard"])
def test_gateway_2_a_proxy_s_404_page_is_no_invalid_answer_of_the_model(policy):
    failed = meaning(Refusal(404, PROXY_PAGE))
    assert failed.kind is Kind.NOT_FOUND
    assert advice(policy, failed).action == "fail"


def test_gateway_2_a_server_that_says_retry_is_bounded_and_named_and_beaten_by_the_stage():
    """That a server's word goes above what its status lets us guess is meant; it ends here."""
    refusal = Refusal(400, {"error": {"retryable": True}})
    failed = meaning(refusal)
    assert failed.rule == "the server says retry (http status 400)"
    first, last = advice("gateway-worker", failed), advice("gateway-worker", failed, attempt=3)
    assert (first.action, first.counted, last.action) == ("retry", True, "fail")
    with pytest.raises(StageError) as said:
        raise StageError("invalid_request", "no") from refusal
    stated = meaning(said.value)
    assert (stated.kind, advice("gateway-worker", stated).action) == (Kind.INVALID_REQUEST, "fail")


@pytest.mark.parametrize("policy", ["gateway-worker", "gateway-costly", "gateway-sync"])
@pytest.mark.parametrize(
    ("code", "kind"), [(code, kind) for code, kind in GATEWAY.kinds.items()], ids=GATEWAY.kinds
)
def test_gateway_2_a_server_that_says_retry_does_not_overrule_a_code_that_is_known(
    policy, code, kind
):
    plain, flagged = (
        meaning(Refusal(500, {"error": {"code": code, **more}}), policy)
        for more in ({}, {"retryable": True})
    )
    assert (plain.kind, flagged.kind, flagged.server_says) == (kind, kind, True)
    assert advice(policy, flagged) == advice(policy, plain)


def test_gateway_3_a_decision_is_made_once_keeps_its_hint_and_is_told_once():
    shop = Shop(stage("one", policy=preset("gateway-worker")))
    id = shop.place.put().id
    shop.pump.once()
    refusal = http_error(503, Retry_After="7", x_should_retry="false")
    shop.finish_all(Raised(evidence_of(refusal)))
    shop.pump.once()
    job = shop.place.see(id)
    (attempt,) = shop.place.reader.attempts(job.no)
    assert [name for name in shop.notes.names() if name is not EventName.JOB_CLAIMED] == [
        EventName.JOB_FAILED
    ]
    assert (job.state, attempt.status) == (State.FAILED, "failed")
    assert '"hint_s":7' in attempt.why_json
    shop.close()


@pytest.mark.parametrize("code", GATEWAY.kinds)
def test_gateway_3_do_not_retry_is_heeded_with_every_code_that_does_not_say_so_itself(code):
    """With the other two the flag is no news, and the worker's one repeat is by the table: decision 0042."""
    by_table = code in ("INTERNAL_ERROR", "UNKNOWN")
    for policy in ("gateway-worker", "gateway-costly", "gateway-sync"):
        failed = meaning(Refusal(503, {"error": {"code": code, "retryable": False}}), policy)
        told = advice(policy, failed)
        if by_table and policy != "gateway-sync":
            assert (told.action, told.code) == ("retry", code)
            assert advice(policy, failed, attempt=2).failed_reason == "exhausted"
        else:
            assert (told.action, told.failed_reason, told.code) == ("fail", "fatal", code)


@pytest.mark.parametrize("policy", PRESETS)
def test_gateway_4_retry_after_is_read_in_both_forms_whatever_the_policy(policy):
    date = format_datetime(NOW + timedelta(seconds=90), usegmt=True)
    for text in ("90", date):
        failed = meaning(http_error(429, Retry_After=text))
        assert (failed.kind, failed.hint_s) == (Kind.RATE_LIMITED, 90.0)
        assert advice(policy, failed).hint_s == 90.0

"""Views with the names of the systems that Perdure serves, asked of real rows on both stores."""

import json
from datetime import UTC, datetime, timedelta

import pytest

from perdure.model.decisions import Counted
from perdure.model.jobs import OnLost, Record
from perdure.model.nouns import replace
from perdure.model.states import FailedReason, Move, State
from perdure.testing import VirtualClock
from perdure.testing.store_contract.attempt_ends import (
    advance,
    cancellation,
    crash,
    failing,
    retry,
    snooze,
    spending,
    success,
)
from perdure.testing.store_contract.fresh_store import TTL_S, Place

EVENTS = {"queued", "processing", "retry", "complete", "failed", "expired"}


class Desk:
    """One job after the other, and what the views say of each."""

    def __init__(self, rig) -> None:
        self.rig = rig
        self.clock = VirtualClock()
        self.place = Place(rig.open(self.clock), self.clock)
        self.worker = self.place.hire()

    def put(self, **changes) -> str:
        return self.place.put(**changes).id

    def take(self, isolation: int = 0):
        (claim,) = self.place.take(self.worker, isolation=isolation)
        return claim

    def settle(self, record: Record, *, after_s: float = 1.0) -> None:
        self.clock.push(after_s)
        self.place.settle(record, by=self.worker)

    def expire(self, id: str) -> None:
        """Its deadline has passed while it waited."""
        job = self.place.see(id)
        record = Record(
            no=job.no,
            id=id,
            token=job.token,
            move=Move.FAIL,
            state=State.FAILED,
            stage=job.stage,
            lane=job.lane,
            counters=job.counters,
            past=job.past,
            isolation=0,
            failed_reason=FailedReason.EXPIRED,
            error_kind="timeout",
            error_code="TIMEOUT",
        )
        self.settle(record)

    def events(self, id: str) -> list[str]:
        asked = f"SELECT event FROM perdure_job_events WHERE job_id = '{id}' ORDER BY at_us, event"
        return [event for (event,) in self.rig.rows(asked)]

    def seen(self, view: str, id: str, *columns: str, key: str = "id") -> tuple:
        (row,) = self.rig.rows(f"SELECT {', '.join(columns)} FROM {view} WHERE {key} = '{id}'")
        return tuple(_plain(value) for value in row)

    def converter(self, id: str, *columns: str) -> tuple:
        return self.seen("perdure_converter_jobs", id, *columns)


def _plain(value: object) -> object:
    """A moment as either store gives it, and everything else as it is."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        return value


@pytest.fixture
def desk(rig):
    desk = Desk(rig)
    yield desk
    desk.place.clean()
    desk.place.close()


# -- job events --------------------------------------------------------------------------


def test_a_job_in_work_has_its_event_before_the_attempt_ends_and_only_once(desk):
    id = desk.put()
    assert desk.events(id) == ["queued"]
    desk.clock.push(1)
    claim = desk.take()
    assert desk.events(id) == ["queued", "processing"]
    columns = ("stage", "attempt", "at_us", "at")
    (row,) = desk.rig.rows(
        f"SELECT {', '.join(columns)} FROM perdure_job_events "
        f"WHERE job_id = '{id}' AND event = 'processing'"
    )
    stage, attempt, at_us, at = row
    assert (stage, attempt, _plain(at)) == ("one", 1, desk.clock.now())
    assert at_us == round(desk.clock.now().timestamp() * 1e6)
    desk.settle(retry(claim, desk.worker))
    assert desk.events(id) == ["queued", "processing", "retry"]
    desk.clock.push(10)
    again = desk.take()
    assert desk.events(id) == ["queued", "processing", "retry", "processing"]
    desk.settle(success(again, desk.worker))
    assert desk.events(id) == ["queued", "processing", "retry", "processing", "complete"]


def test_the_ends_of_jobs_have_the_names_that_were_agreed(desk):
    dead = desk.put()
    desk.clock.push(1)
    desk.settle(failing(desk.take(), desk.worker, code="E7"))
    assert desk.events(dead) == ["queued", "processing", "failed"]
    waited = desk.put(deadline_s=0.5)
    desk.expire(waited)
    assert desk.events(waited) == ["queued", "expired"]
    tried = desk.put()
    desk.clock.push(1)
    late = replace(failing(desk.take(), desk.worker), failed_reason=FailedReason.EXPIRED)
    desk.settle(late)
    assert desk.events(tried) == ["queued", "processing", "expired"]
    done = desk.put()
    desk.clock.push(1)
    desk.settle(retry(desk.take(), desk.worker, delay_s=0.0))
    desk.clock.push(1)
    desk.settle(success(desk.take(), desk.worker))
    told = {event for id in (dead, waited, tried, done) for event in desk.events(id)}
    assert told == EVENTS
    codes = desk.rig.rows(
        "SELECT event, code FROM perdure_job_events WHERE code IS NOT NULL ORDER BY event"
    )
    assert codes == [("expired", "TIMEOUT"), ("failed", "E7")]


def test_the_end_of_an_earlier_life_is_told_as_its_last_attempt_has_it(desk):
    tried = desk.put()
    desk.clock.push(1)
    late = replace(failing(desk.take(), desk.worker), failed_reason=FailedReason.EXPIRED)
    desk.settle(late)
    waited = desk.put(deadline_s=0.5)
    desk.expire(waited)
    desk.clock.push(1)
    for id in (tried, waited):
        desk.place.revive(desk.place.see(id))
    assert desk.events(tried)[:3] == ["queued", "processing", "failed"]
    assert desk.events(waited)[0] == "queued"
    assert "expired" not in [*desk.events(tried), *desk.events(waited)]


# -- jobs, as the converter calls them ---------------------------------------------------


def test_a_job_is_shown_with_the_converters_names_through_its_life(desk):
    names = ("status", '"attemptCount"', '"lastAttemptAt"', '"retryAfter"', "leased_by")
    start = desk.clock.now()
    id = desk.put(deadline_s=9e6)
    assert desk.converter(id, *names) == ("queued", 0, None, None, None)
    desk.clock.push(1)
    first_at = desk.clock.now()
    claim = desk.take()
    assert desk.converter(id, *names) == ("processing", 1, first_at, None, "host:1")
    desk.settle(replace(retry(claim, desk.worker, delay_s=5.0), error_code="GW_5XX"))
    retried_at = desk.clock.now()
    due_at = retried_at + timedelta(seconds=5)
    assert desk.converter(id, *names) == ("queued", 1, first_at, due_at, None)
    errors = ('"errorCode"', '"errorMessage"', '"failedReason"', '"deadLetter"')
    assert desk.converter(id, *errors) == ("GW_5XX", "The connection failed.", None, 0)
    assert desk.converter(id, "lease_expires_at", "updated_at") == (None, retried_at)
    desk.clock.push(5)
    second_at = desk.clock.now()
    desk.settle(failing(desk.take(), desk.worker, code="NOT_PDF"))
    assert desk.converter(id, *names) == ("failed", 2, second_at, None, None)
    assert desk.converter(id, *errors) == ("NOT_PDF", "The item is broken.", "fatal", 1)
    ended_at = desk.clock.now()
    desk.clock.push(1)
    assert desk.converter(id, '"endedAt"') == (ended_at,)
    desk.place.revive(desk.place.see(id))
    times = ("created_at", '"queuedAt"', "started_at", "updated_at")
    assert desk.converter(id, *times) == (start, desk.clock.now(), first_at, desk.clock.now())
    assert desk.converter(id, '"endedAt"') == (None,)
    assert desk.converter(id, *names[:2], *errors) == ("queued", 0, None, None, None, 0)
    desk.settle(success(desk.take(), desk.worker))
    assert desk.converter(id, "status", '"attemptCount"') == ("complete", 1)


def test_the_converters_tries_are_those_that_count_and_the_end_stays_when_it_is_discarded(desk):
    id = desk.put()
    desk.settle(snooze(desk.take(), desk.worker, delay_s=0.0))
    assert desk.converter(id, '"attemptCount"', '"endedAt"') == (0, None)
    claim = desk.take()
    assert desk.converter(id, '"attemptCount"') == (1,)
    desk.settle(failing(claim, desk.worker))
    ended_at = desk.clock.now()
    desk.clock.push(60)
    desk.place.discard(desk.place.see(id))
    assert desk.converter(id, '"attemptCount"', '"endedAt"') == (1, ended_at)


def test_the_converters_tries_are_those_of_all_stages(desk):
    id = desk.put()
    tries = []

    def settle(end, **how) -> None:
        desk.clock.push(10)
        claim = desk.take(**how)
        during = desk.converter(id, '"attemptCount"')
        desk.settle(end(claim))
        tries.append((*during, *desk.converter(id, '"attemptCount"')))

    def counted_crash(claim) -> Record:
        """As a policy has it that counts a crash as a failure."""
        record = crash(claim, desk.worker)
        told = replace(record.attempt, counted="crashes,failures")
        return replace(record, counters=record.counters.after_event(Counted.FAILURES), attempt=told)

    settle(lambda claim: retry(claim, desk.worker))
    settle(lambda claim: crash(claim, desk.worker))
    second = desk.place.lanes["two"]
    settle(lambda claim: replace(advance(claim, desk.worker, second), isolation=0), isolation=1)
    settle(counted_crash)
    settle(lambda claim: success(claim, desk.worker), isolation=1)
    assert tries == [(1, 1), (2, 1), (2, 2), (3, 3), (4, 4)]


def test_a_lease_is_its_workers_and_moves_with_every_beat(desk):
    id = desk.put()
    desk.take()
    names = ("leased_by", "lease_expires_at")
    ttl = timedelta(seconds=TTL_S)
    assert desk.converter(id, *names) == ("host:1", desk.clock.now() + ttl)
    desk.clock.push(TTL_S / 3)
    desk.place.store.beat([desk.worker])
    assert desk.converter(id, *names) == ("host:1", desk.clock.now() + ttl)
    assert desk.converter(id, "started_at") == (desk.clock.now() - ttl / 3,)


def test_the_lease_of_a_caller_lasts_until_its_job_must_have_ended(desk):
    new = desk.place.new()
    desk.place.store.begin(new, worker=desk.worker, hard_s=60.0, on_lost=OnLost.DROP)
    ends_at = desk.clock.now() + timedelta(seconds=60)
    assert desk.converter(new.id, "status", "lease_expires_at") == ("processing", ends_at)


# -- samples, as the datasets call them --------------------------------------------------


def test_a_sample_is_in_the_dlq_until_it_is_discarded_or_driven_again(desk):
    run = desk.place.begin_run("march")
    names = ("pipeline_id", "status", "dlq_reason", "updated_at")
    id = desk.put(run=run.no, key="k")
    assert desk.seen("perdure_dataset_samples", id, *names[:3]) == ("p", "pending", None)
    claim = desk.take()
    claimed_at = desk.clock.now()
    assert desk.seen("perdure_dataset_samples", id, "status") == ("processing",)
    said = 'no "text" in C:\\temp, 🎉'
    desk.settle(failing(claim, desk.worker, detail=said))
    pipeline, status, reason, updated_at = desk.seen("perdure_dataset_samples", id, *names)
    assert (pipeline, status, updated_at) == ("p", "dlq", desk.clock.now())
    found = json.loads(reason) if isinstance(reason, str) else reason
    assert _plain(found.pop("last_attempt_at")) == claimed_at
    assert found == {"stage": "one", "error": said}
    assert desk.seen("perdure_dataset_samples", id, "CAST(run_id AS text)", "key") == (run.id, "k")
    desk.place.revive(desk.place.see(id))
    assert desk.seen("perdure_dataset_samples", id, *names[1:3]) == ("pending", None)
    desk.settle(failing(desk.take(), desk.worker))
    desk.place.discard(desk.place.see(id))
    assert desk.seen("perdure_dataset_samples", id, *names[1:3]) == ("failed", None)
    done = desk.put()
    desk.settle(success(desk.take(), desk.worker))
    assert desk.seen("perdure_dataset_samples", done, *names[1:3]) == ("completed", None)


def test_every_try_of_a_stage_is_a_row_with_the_hash_of_its_settings(desk):
    id = desk.put()
    first, second = "a" * 16, "b" * 16

    def hashed(record: Record, config_hash: str, message: str = "") -> Record:
        told = replace(record.attempt, config_hash=config_hash, message=message)
        return replace(record, attempt=told)

    limited = retry(desk.take(), desk.worker, delay_s=0.0)
    desk.settle(hashed(limited, first, "429 Rate Limit"))
    desk.settle(hashed(snooze(desk.take(), desk.worker, delay_s=0.0), first))
    desk.settle(hashed(crash(desk.take(), desk.worker), first))
    step = advance(desk.take(isolation=1), desk.worker, desk.place.lanes["two"])
    desk.settle(hashed(replace(step, isolation=0), second))
    desk.settle(hashed(failing(desk.take(), desk.worker), second, "no rows"))
    rows = desk.rig.rows(
        "SELECT stage_name, stage_config_hash, attempt, status, error_message, applied_at "
        f"FROM perdure_dataset_stages_applied WHERE sample_id = '{id}' ORDER BY applied_at"
    )
    assert [row[:5] for row in rows] == [
        ("one", first, 1, "retrying", "429 Rate Limit"),
        ("one", first, 2, "retrying", None),
        ("one", first, 3, "retrying", "worker_lost"),
        ("one", second, 4, "success", None),
        ("two", second, 1, "failed", "no rows"),
    ]
    assert [_plain(row[5]) for row in rows][-1] == desk.clock.now()


def test_the_history_of_a_sample_says_whose_it_is_and_what_each_try_cost(desk):
    run = desk.place.begin_run()
    id = desk.put(run=run.no, owner="ann")
    met = failing(desk.take(), desk.worker, kind="invalid_output")
    desk.settle(spending(met, tokens_in=40, tokens_out=2, cost_nusd=1_500_000))
    of_run = f"run_id = '{run.id}'"
    assert desk.seen("perdure_dataset_samples", id, "tenant_id", of_run) == ("ann", True)
    asked = f"{of_run}, error_kind, duration_s, tokens_in, tokens_out, cost_usd"
    told = desk.seen("perdure_dataset_stages_applied", id, asked, key="sample_id")
    assert told == (True, "invalid_output", 0.5, 40, 2, 0.0015)


def test_what_was_cancelled_has_its_own_name_everywhere(desk):
    id = desk.put()
    desk.settle(cancellation(desk.take(), desk.worker))
    assert desk.converter(id, "status") == ("cancelled",)
    assert desk.seen("perdure_dataset_samples", id, "status") == ("cancelled",)
    view = "perdure_dataset_stages_applied"
    assert desk.seen(view, id, "status", key="sample_id") == ("cancelled",)
    assert "cancelled" in desk.events(id)

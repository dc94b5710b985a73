"""Pages and previews against a filter in plain Python, with steps so small that every edge is met."""

import random
from datetime import datetime, timedelta

import pytest

from perdure.model.filters import JobFilter
from perdure.model.runs import NewRun
from perdure.model.states import FailedReason, State
from perdure.model.views import JobView
from perdure.stores import dead_groups, job_lists
from tests.stores.kit import DEED, MEMORY, Place, cancellation, failure, retry, success, target

FAILED_ONLY = (State.FAILED,)


def matches(job: JobView, chosen: JobFilter) -> bool:
    """The filter as people read it."""
    wanted = {
        "pipeline": chosen.pipeline,
        "stage": chosen.stage,
        "queue": chosen.queue,
        "category": chosen.category,
        "owner": chosen.owner,
        "error_kind": chosen.kind,
        "failed_reason": chosen.reason,
        "error_code": chosen.code,
        "fingerprint": chosen.fingerprint,
        "key": chosen.key,
        "label": chosen.label,
    }
    said = [one.casefold() for one in (job.error_message, job.error_detail) if one is not None]
    return (
        all(value is None or getattr(job, name) == value for name, value in wanted.items())
        and (not chosen.states or job.state in chosen.states)
        and (chosen.run is None or chosen.run in (job.run, job.redrive_run))
        and (chosen.text is None or any(chosen.text.casefold() in one for one in said))
        and (chosen.enqueued_from is None or job.enqueued_at >= chosen.enqueued_from)
        and (chosen.enqueued_until is None or job.enqueued_at < chosen.enqueued_until)
        and (chosen.finished_from is None or _is_from(job.finished_at, chosen.finished_from))
        and (chosen.finished_until is None or _is_before(job.finished_at, chosen.finished_until))
        and chosen.retrying in (None, job.shown_state == "retrying")
        and (chosen.discarded is None or (job.discarded_at is not None) == chosen.discarded)
    )


def _is_from(moment: datetime | None, first: datetime) -> bool:
    return moment is not None and moment >= first


def _is_before(moment: datetime | None, end: datetime) -> bool:
    return moment is not None and moment < end


@pytest.fixture(scope="module")
def full():
    """Jobs of two owners, three runs and every state, with gaps in their numbers."""
    chance = random.Random(11)
    place = Place(MEMORY)
    runs = [place.control.add_run(NewRun(f"run-{n}", "", "p", f"r{n}")).no for n in range(3)]
    worker = place.hire()
    place.began_at = place.clock.now()
    for _ in range(120):
        place.put(
            owner=chance.choice(["ann", "bob"]),
            run=chance.choice([None, None, *runs[:2]]),
            run_at=chance.choice([None, place.clock.now() + timedelta(days=1)]),
        )
        place.clock.push(1)
    ends = [success, failure, failure, retry, cancellation, None]
    for claim in place.take(worker, 200):
        end = chance.choice(ends)
        if end is not None:
            place.settle(end(claim, worker), by=worker)
            place.clock.push(1)
    dead = place.reader.jobs(JobFilter(states=FAILED_ONLY), limit=500)
    place.control.discard([target(job) for job in dead[::3]], DEED)
    place.damage(
        "DELETE FROM perdure_jobs WHERE no BETWEEN 31 AND 60",
        f"UPDATE perdure_jobs SET redrive_run = {runs[2]} WHERE no % 4 = 0",
        "UPDATE perdure_jobs SET error_message = 'ÄPFEL 100% _ ÄRGER' WHERE no % 5 = 0",
        "UPDATE perdure_jobs SET error_detail = 'BIRNEN', error_message = NULL WHERE no % 7 = 0",
        "UPDATE perdure_jobs SET key = 'k1' WHERE no IN (SELECT max(no) FROM perdure_jobs GROUP BY owner, run)",
        "UPDATE perdure_jobs SET error_code = 'c' || (no % 2), fingerprint = 'f' || (no % 3) "
        "WHERE state = 'failed'",
        "UPDATE perdure_jobs SET label = 'l' || (no % 3) WHERE state = 'succeeded'",
        "DELETE FROM perdure_deaths",
        *(
            f"INSERT INTO perdure_deaths SELECT {owner}, fingerprint, pipeline, stage, failed_reason, error_kind, "
            "error_code, 0, count(*) FILTER (WHERE discarded_at IS NULL), count(*), min(finished_at), max(finished_at) "
            "FROM perdure_jobs WHERE state = 'failed' GROUP BY 1, 2, 3, 4, 5, 6, 7"
            for owner in ("''", "owner")
        ),
    )
    place.runs = runs
    yield place
    place.close()


def filters(place: Place) -> list[JobFilter]:
    moment = place.began_at + timedelta(seconds=70)
    ended = place.began_at + timedelta(seconds=150)
    return [
        JobFilter(),
        JobFilter(states=FAILED_ONLY),
        JobFilter(states=FAILED_ONLY, discarded=False),
        JobFilter(discarded=True),
        JobFilter(discarded=False, states=(State.FAILED, State.QUEUED)),
        JobFilter(states=(State.QUEUED,)),
        JobFilter(states=(State.PROCESSING, State.QUEUED)),
        JobFilter(states=(State.SUCCEEDED, State.CANCELLED)),
        JobFilter(owner="ann"),
        JobFilter(owner="nobody"),
        JobFilter(owner="ann", states=FAILED_ONLY, discarded=False),
        JobFilter(owner="bob", states=(State.QUEUED, State.SUCCEEDED), queue="q"),
        JobFilter(owner="ann", run=place.runs[0]),
        JobFilter(owner="bob", text="äpfel"),
        *(JobFilter(run=no) for no in (*place.runs, 99)),
        JobFilter(run=place.runs[2], states=FAILED_ONLY),
        JobFilter(reason=FailedReason.FATAL),
        JobFilter(reason=FailedReason.CRASHED),
        JobFilter(states=(State.QUEUED,), kind="network"),
        JobFilter(text="äpfel 100% _ ä"),
        JobFilter(text="%"),
        JobFilter(text="100_"),
        JobFilter(text="äpfel", states=FAILED_ONLY),
        JobFilter(text=""),
        JobFilter(text="birnen"),
        JobFilter(text="birnen", states=FAILED_ONLY),
        JobFilter(code="c1"),
        JobFilter(fingerprint="f2"),
        JobFilter(fingerprint="f1", pipeline="p", code="c0"),
        JobFilter(fingerprint="f1", run=place.runs[0]),
        JobFilter(fingerprint="none"),
        JobFilter(finished_from=ended),
        JobFilter(finished_until=ended, states=FAILED_ONLY),
        JobFilter(enqueued_from=moment),
        JobFilter(enqueued_until=moment),
        JobFilter(states=(State.QUEUED,), retrying=True),
        JobFilter(states=(State.QUEUED,), retrying=False),
        JobFilter(label="l1"),
        JobFilter(label="l1", owner="ann"),
        JobFilter(key="k1"),
        JobFilter(key="k1", owner="ann"),
        JobFilter(key="k1", owner="nobody"),
        JobFilter(key="k1", owner="bob", states=FAILED_ONLY),
        JobFilter(key="k1", owner="bob", run=place.runs[0]),
        JobFilter(queue="q", category="c"),
        JobFilter(queue="other"),
        JobFilter(stage="two"),
        JobFilter(pipeline="p", stage="one", reason=FailedReason.FATAL, kind="input_invalid"),
    ]


@pytest.mark.parametrize("look", [1, 2, 7, 50, 20_000])
@pytest.mark.parametrize("limit", [1, 3, 500])
def test_pages_hold_exactly_what_the_filter_means(full, monkeypatch, look, limit):
    everything = full.reader.jobs(limit=500)
    assert len(everything) == 90
    monkeypatch.setattr(job_lists, "LOOK_ROWS_MAX", look)
    monkeypatch.setattr(job_lists, "OWNED_ROWS_MAX", min(look, 250))
    for chosen in filters(full):
        found, before = [], None
        while True:
            page = full.reader.jobs(chosen, limit=limit, before=before)
            found += page
            if len(page) < limit:
                break
            before = page[-1].no
        assert found == [job for job in everything if matches(job, chosen)], chosen


@pytest.mark.parametrize("look", [7, 50, 20_000])
def test_previews_count_what_the_filter_means_or_say_that_they_stopped(full, monkeypatch, look):
    everything = full.reader.jobs(limit=500)
    monkeypatch.setattr(job_lists, "LOOK_ROWS_MAX", look)
    for chosen in filters(full):
        meant = [job for job in everything if matches(job, chosen)]
        for count_max in (1, 10, 1000):
            seen = full.reader.preview(chosen, count_max=count_max)
            assert seen.count <= min(count_max, len(meant))
            assert seen.capped or seen.count == len(meant)
            assert sum(group.count for group in seen.groups) <= seen.count
            if look == 20_000:
                assert (seen.count, seen.capped) == (
                    min(count_max, len(meant)),
                    len(meant) > count_max,
                )


def alike(job: JobView) -> tuple[str, ...]:
    return (
        job.fingerprint or "",
        job.pipeline,
        job.stage,
        job.error_kind or "",
        job.error_code or "",
    )


@pytest.mark.parametrize("look", [1, 7, 20_000])
@pytest.mark.parametrize("dead", [3, 1_000_000], ids=["many", "few"])
def test_groups_are_of_all_dead_letters_that_the_filter_means(full, monkeypatch, look, dead):
    everything = full.reader.jobs(limit=500)
    monkeypatch.setattr(job_lists, "LOOK_ROWS_MAX", look)
    monkeypatch.setattr(dead_groups, "DEAD_ROWS_MAX", dead)
    met = 0
    for chosen in filters(full):
        meant = [job for job in everything if matches(job, chosen) and job.state is State.FAILED]
        wanted: dict[tuple[str, ...], list[JobView]] = {}
        for job in meant:
            wanted.setdefault(alike(job), []).append(job)
        found = full.reader.dead_groups(chosen, limit=100)
        assert [one.count for one in found] == sorted((one.count for one in found), reverse=True)
        assert len(found) == len(wanted)
        for one in found:
            like = (one.fingerprint, one.pipeline, one.stage, one.kind, one.code)
            jobs = wanted[like]
            ends = [
                job.finished_at
                for job in everything
                if job.state is State.FAILED
                and alike(job) == like
                and chosen.owner in (None, job.owner)
            ]
            assert (one.count, one.first_at, one.last_at) == (len(jobs), min(ends), max(ends))
            newest = jobs[0]  # the newest come first
            assert one.example_id == newest.id
            assert one.example == (newest.error_detail or newest.error_message)
        met += len(found) > 1
    assert met > 10
    assert len(full.reader.dead_groups(limit=2)) == 2


def test_no_step_looks_at_more_than_its_share(full, monkeypatch):
    monkeypatch.setattr(job_lists, "LOOK_ROWS_MAX", 7)
    looked = []
    plain = job_lists.Choice._statement

    def noting(self, step):
        looked.append(step)
        return plain(self, step)

    monkeypatch.setattr(job_lists.Choice, "_statement", noting)
    full.reader.jobs(JobFilter(pipeline="nowhere"))
    assert len(looked) >= 90 // 7


def test_a_damaged_row_does_not_spoil_a_page():
    place = Place(MEMORY)
    ids = [one.id for one in place.put_many(6)]
    place.damage(
        "UPDATE perdure_jobs SET past = 'x' WHERE no = 3",
        "UPDATE perdure_jobs SET state = 'limbo' WHERE no = 4",
    )
    assert [job.no for job in place.reader.jobs(limit=4)] == [6, 5, 3, 2]
    assert [job.no for job in place.reader.jobs(limit=4, before=2)] == [1]
    assert {one.subject for one in place.reader.audit()} == {ids[2], ids[3], "lane number 1"}
    place.close()

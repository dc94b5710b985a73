"""Periodic jobs: one job for each moment, whoever ticks; what was missed is made up for once."""

import threading
from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from perdure.engine.idempotency import key_from_moment
from perdure.engine.ids import Ids
from perdure.engine.observe import Observers
from perdure.engine.stages import Catalogue
from perdure.engine.upkeep.rounds import DUTY_TTL_S
from perdure.engine.upkeep.schedules import Declaring, Schedule, Ticking, declare
from perdure.model.errors import ConfigError, PayloadRefused, StoreUnavailable
from perdure.model.events import EventName
from perdure.model.nouns import replace
from perdure.model.operations import NewSchedule
from tests.engine.kit import Notes, line_on
from tests.engine.upkeep.upkeeping import KILLED, upkeep

PERIOD_S = 900.0  # the virtual clock starts at midnight UTC, which is one of its moments


def schedule(place, spec="15m", *, item=None, **more) -> Schedule:
    return declare(spec, line_on(place), item, **more)


def ticking(place, *schedules, notes=None, catalogue=None) -> Ticking:
    """The chore alone, whoever has the duty; what it ticks is in the store."""
    Declaring(place.control, place.reader, schedules).once()
    return Ticking(
        place.control,
        place.reader,
        catalogue or Catalogue([line_on(place)]),
        schedules,
        ids=Ids(place.clock, Random(place._series)),
        observers=Observers([notes] if notes else []),
    )


def keys(place) -> list[str]:
    """The keys of all jobs, oldest first."""
    return [job.key for job in reversed(place.reader.jobs(limit=200))]


def later(place, seconds: float) -> datetime:
    return place.clock.now() + timedelta(seconds=seconds)


# -- ticks -----------------------------------------------------------------------------------


def test_a_moment_makes_a_job_when_it_comes_and_not_before(either):
    notes = Notes()
    worker = either.hire()
    sweeper = upkeep(
        either,
        worker,
        notes=notes,
        schedules=[schedule(either, item={"n": 7}, owner="ann", priority=3)],
    )
    assert sweeper.once() == 0
    either.clock.push(PERIOD_S - 0.000001)
    assert sweeper.once() == 0
    either.clock.push(0.000001)
    assert sweeper.once() == 1
    assert sweeper.once() == 0
    (job,) = either.reader.jobs()
    assert (job.payload_json, job.owner, job.pipeline, job.stage) == ('{"n":7}', "ann", "p", "one")
    assert (job.key, job.priority) == ("p at 2030-01-01T00:15:00+00:00", 3)
    assert either.take(worker)[0].id == job.id
    (row,) = either.reader.schedules()
    assert (row.next_at, row.ticks) == (later(either, PERIOD_S), 1)
    (told,) = notes.of(EventName.JOB_ENQUEUED)
    whose = {"job_id": job.id, "request_id": job.id, "owner": "ann"}
    assert told == {**whose, "pipeline": "p", "run": None, "count": 1}
    either.clean()


def test_each_moment_makes_one_job_while_rounds_come_every_second(either):
    sweeper = upkeep(either, either.hire(), schedules=[schedule(either, "10s")])
    for _ in range(61):
        sweeper.once()
        either.clock.push(1.0)
    assert keys(either) == [
        key_from_moment("p", datetime(2030, 1, 1, 0, 0, second, tzinfo=UTC))
        for second in range(10, 60, 10)
    ] + [key_from_moment("p", datetime(2030, 1, 1, 0, 1, tzinfo=UTC))]
    either.clean()


def test_after_an_outage_of_three_periods_there_is_one_job_for_the_latest_moment(either):
    worker = either.hire()
    upkeep(either, worker, schedules=[schedule(either)]).once()
    either.clock.push(3 * PERIOD_S + 60)
    later_on = upkeep(either, either.hire(), schedules=[schedule(either)])
    assert later_on.once() == 1
    assert later_on.once() == 0
    assert keys(either) == ["p at 2030-01-01T00:45:00+00:00"]
    (row,) = either.reader.schedules()
    assert row.next_at == datetime(2030, 1, 1, 1, 0, tzinfo=UTC)
    either.clock.push(PERIOD_S)
    assert later_on.once() == 1
    assert keys(either)[-1] == "p at 2030-01-01T01:00:00+00:00"


def test_two_tickers_at_once_make_one_job_of_each_moment(anywhere):
    """Neither asks for the duty. Each has its own connection and looks before either writes."""
    places = [anywhere() for _ in range(2)]
    rounds = 12
    names = [f"s{n}" for n in range(5)]
    chores = [
        ticking(place, *(schedule(place, "10s", name=name) for name in names)) for place in places
    ]
    together = threading.Barrier(2, action=lambda: places[0].clock.push(10.0))
    swept = [0, 0]

    def work(who: int) -> None:
        for _ in range(rounds):
            together.wait(20)
            swept[who] += chores[who].once().jobs

    threads = [threading.Thread(target=work, args=(who,)) for who in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(swept) == rounds * len(names)
    made = [job.key for job in places[0].reader.jobs(limit=200)]
    assert len(made) == len(set(made)) == rounds * len(names)
    assert {row.ticks for row in places[0].reader.schedules()} == {rounds}
    places[0].clean()


def test_who_looked_before_another_ticked_makes_no_second_job(either):
    chore = ticking(either, schedule(either))
    either.clock.push(PERIOD_S)
    (row,) = either.reader.schedules(due=True)
    stale = chore.tick_of(row, either.reader.now())
    assert chore.once().jobs == 1
    assert either.control.tick(stale) is None
    assert len(keys(either)) == 1
    either.store.enqueue([replace(stale.job, key=None)])  # twin: without guard and key it is made
    assert len(keys(either)) == 2


def test_a_tick_whose_answer_was_lost_is_not_made_again(either):
    class Broken:
        def tick(self, tick):
            either.control.tick(tick)
            raise StoreUnavailable("the line broke on the way back")

    chore = ticking(either, schedule(either))
    either.clock.push(PERIOD_S)
    chore._control = Broken()
    with pytest.raises(StoreUnavailable):
        chore.once()
    chore._control = either.control
    assert chore.once().jobs == 0
    assert len(keys(either)) == 1


def test_ticks_go_on_when_the_worker_that_has_the_duty_dies(either):
    first, second = either.hire(), either.hire()
    sweepers = [upkeep(either, one, schedules=[schedule(either)]) for one in (first, second)]
    assert [one.once() for one in sweepers] == [0, 0]
    for _ in range(2):
        either.clock.push(PERIOD_S)
        assert [one.once() for one in sweepers] == [1, 0]
    either.store.end_worker(first, KILLED)
    either.clock.push(PERIOD_S)
    assert sweepers[1].once() == 1
    assert len(keys(either)) == 3


def test_a_silent_holder_is_succeeded_within_the_time_of_its_duty(either):
    first, second = either.hire(), either.hire()
    sweepers = [upkeep(either, one, schedules=[schedule(either, "10s")]) for one in (first, second)]
    sweepers[0].once()
    sweepers[1].once()
    either.clock.push(10)
    sweepers[0].once()  # and then it hangs
    made = []
    for second_no in range(20):
        either.clock.push(1.0)
        if sweepers[1].once():
            made.append(second_no + 1)
    assert made == [10, 20]  # the duty was free after three of them
    assert DUTY_TTL_S < 10


# -- what is declared, and what is in the store --------------------------------------------------


def test_a_restart_neither_skips_nor_repeats_a_moment(either):
    for _ in range(4):
        upkeep(either, either.hire(), schedules=[schedule(either)]).once()
        either.clock.push(PERIOD_S / 3 + DUTY_TTL_S)
    assert keys(either) == ["p at 2030-01-01T00:15:00+00:00"]


def test_another_rule_counts_from_its_declaration_on(either):
    upkeep(either, either.hire(), schedules=[schedule(either)]).once()
    either.clock.push(60)
    upkeep(either, either.hire(), schedules=[schedule(either, "2m")]).once()
    (row,) = either.reader.schedules()
    assert (row.spec, row.next_at) == ("every 2m", datetime(2030, 1, 1, 0, 2, tzinfo=UTC))


def test_each_worker_puts_what_its_app_declares_whoever_has_the_duty(either):
    upkeep(either, either.hire(), schedules=[schedule(either, item=1)]).once()
    upkeep(either, either.hire(), schedules=[schedule(either, item=2)]).once()
    assert [row.payload_json for row in either.reader.schedules()] == ["2"]


def test_putting_them_goes_on_after_an_error(place):
    class Flaky:
        def __init__(self):
            self.left = 1

        def put_schedule(self, schedule):
            if schedule.name == "b" and self.left:
                self.left = 0
                raise StoreUnavailable("away")
            place.control.put_schedule(schedule)

    wanted = [schedule(place, name=name) for name in "abc"]
    step = Declaring(Flaky(), place.reader, wanted)
    with pytest.raises(StoreUnavailable):
        step.once()
    step.once()
    assert [row.name for row in place.reader.schedules()] == ["a", "b", "c"]


def test_a_schedule_that_is_no_longer_declared_is_left_alone(either):
    ticking(either, schedule(either, name="old"))
    chore = ticking(either, schedule(either, name="new"))
    either.clock.push(PERIOD_S)
    assert chore.once().jobs == 1
    assert keys(either) == ["new at 2030-01-01T00:15:00+00:00"]


def test_a_rule_or_a_pipeline_that_this_version_does_not_know_is_left_alone(either):
    chore = ticking(either, *(schedule(either, name=name) for name in ("rule", "pipeline", "mine")))
    for name, pipeline, spec in (("rule", "p", "at full moon"), ("pipeline", "other", "every 15m")):
        either.control.put_schedule(
            NewSchedule(name, pipeline, spec, "null", later(either, PERIOD_S))
        )
    either.clock.push(PERIOD_S)
    assert chore.once().jobs == 1
    assert keys(either) == ["mine at 2030-01-01T00:15:00+00:00"]


def test_a_rule_that_another_worker_has_put_since_is_the_one_that_counts(either):
    """Of two versions of an app the one that started last is right, whoever ticks."""
    chore = ticking(either, schedule(either, item="old"))
    ticking(either, schedule(either, "1m", item="new"))
    either.clock.push(60)
    assert chore.once().jobs == 1
    (job,) = either.reader.jobs()
    assert job.payload_json == '"new"'


def test_workers_that_declare_different_schedules_each_have_somebody_to_tick(either):
    first = upkeep(either, either.hire(), schedules=[schedule(either, name="a")])
    second = upkeep(either, either.hire(), schedules=[schedule(either, name="b")])
    first.once()
    second.once()
    either.clock.push(PERIOD_S)
    assert (first.once(), second.once()) == (1, 1)


def test_without_schedules_the_store_is_not_asked_for_any(place):
    class Silent:
        """Any question is one too many."""

    chore = Ticking(
        Silent(),
        Silent(),
        Catalogue([]),
        (),
        ids=Ids(place.clock, Random(1)),
        observers=Observers(),
    )
    assert chore.once().jobs == 0


def test_the_stores_time_decides_and_not_the_workers(place):
    """The worker's clock is an hour ahead; ids are all that it is asked for."""

    class Ahead:
        def now(self):
            return place.clock.now() + timedelta(hours=1)

    schedules = [schedule(place)]
    Declaring(place.control, place.reader, schedules).once()
    chore = Ticking(
        place.control,
        place.reader,
        Catalogue([line_on(place)]),
        schedules,
        ids=Ids(Ahead(), Random(1)),
        observers=Observers(),
    )
    assert chore.once().jobs == 0
    place.clock.push(PERIOD_S)
    assert chore.once().jobs == 1
    assert place.reader.schedules()[0].next_at == later(place, PERIOD_S)


def test_cron_in_a_time_zone_ticks_through_a_doubled_hour(either):
    """Berlin, 2030-10-27: half past two comes twice, and makes one job."""
    sweeper = upkeep(
        either,
        either.hire(),
        schedules=[schedule(either, "30 2 * * *", name="nightly", timezone="Europe/Berlin")],
    )
    sweeper.once()
    either.clock.push((datetime(2030, 10, 26, 12, tzinfo=UTC) - either.clock.now()).total_seconds())
    sweeper.once()
    before = len(keys(either))
    for _ in range(48):
        either.clock.push(1800)
        sweeper.once()
    assert keys(either)[before:] == ["nightly at 2030-10-27T00:30:00+00:00"]


# -- declaring ---------------------------------------------------------------------------------


def test_a_schedule_is_named_after_its_pipeline_unless_told_otherwise(place):
    assert schedule(place).name == "p"
    assert schedule(place, name="nightly").name == "nightly"


def test_bad_declarations_are_refused(place):
    with pytest.raises(ConfigError, match="schedule name ''"):
        schedule(place, name="")
    with pytest.raises(ConfigError, match="owner name ' x'"):
        schedule(place, owner=" x")
    with pytest.raises(ConfigError, match="no interval"):
        schedule(place, "often")
    for priority in ("high", True, 1_000_001):
        with pytest.raises(ConfigError, match=r"priority is .*; it must be a whole number"):
            schedule(place, priority=priority)
    with pytest.raises(PayloadRefused, match="the item"):
        schedule(place, item=object())

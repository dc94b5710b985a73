"""What may be let go, chosen from rows: the arithmetic that both stores share."""

from perdure.model.operations import Retention
from perdure.stores.pruning import Aged, Ends

DAY_S = 86_400
NOW = 100 * DAY_S * 1_000_000
ENDS = Ends.of(Retention(succeeded_s=30 * DAY_S), NOW)


def row(no: int, *, enqueued: int, finished: int | None = None) -> tuple:
    """A row of `prune_look.sql`; times in days."""
    day = DAY_S * 1_000_000
    end = None if finished is None else finished * day
    state = "succeeded" if finished else "queued"
    return (no, f"job-{no}", "p", state, enqueued * day, end, None, False)


def test_what_ended_before_the_end_is_chosen():
    rows = [row(1, enqueued=1, finished=2), row(2, enqueued=1, finished=90), row(3, enqueued=2)]
    assert ENDS.choose_aged(rows, 10) == Aged([rows[0]], None)


def test_a_job_from_a_time_when_the_clock_was_ahead_stops_nobody_else():
    rows = [
        row(1, enqueued=1, finished=2),
        row(2, enqueued=3650, finished=2),
        row(3, enqueued=1, finished=3),
        row(4, enqueued=2, finished=4),
    ]
    assert ENDS.choose_aged(rows, 4) == Aged([rows[0], rows[2], rows[3]], 4)


def test_the_look_is_over_when_its_last_job_is_too_young():
    rows = [row(1, enqueued=1, finished=2), row(2, enqueued=80, finished=81)]
    assert ENDS.choose_aged(rows, 2) == Aged([rows[0]], None)


def test_the_look_goes_on_while_it_is_full_of_old_jobs():
    rows = [row(1, enqueued=1, finished=2), row(2, enqueued=1)]
    assert ENDS.choose_aged(rows, 2) == Aged([rows[0]], 2)


def test_without_an_end_nothing_goes():
    assert Ends.of(Retention(), NOW).choose_aged([row(1, enqueued=1, finished=2)], 1) == Aged(
        [], None
    )


def test_what_a_run_still_needs_is_not_chosen():
    free, needed = row(1, enqueued=1, finished=2), row(2, enqueued=1, finished=2)
    needed = (*needed[:-1], True)
    assert ENDS.choose_aged([free, needed], 10) == Aged([free], None)

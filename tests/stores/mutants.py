"""Bugs that other queues have or had, and some that this one could have, put in one at a time; no switch in the source.

Where the bug is a missing guard, the patch shows the store whatever token the job has at that moment,
which is what a statement without the guard would let pass. Where it is one clause of one statement,
that clause is taken out; it must still be there.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from perdure.model.jobs import ClaimOrder, Record, Turn
from perdure.model.nouns import replace
from perdure.model.states import State
from perdure.stores import job_lists, tally_reads
from perdure.stores.postgres.statements import SQL as POSTGRES
from perdure.stores.postgres.store import PostgresStore
from perdure.stores.sqlite.statements import SQL as SQLITE
from perdure.stores.sqlite.store import SqliteStore
from tests.stores.rigs import Rig

Patch = Callable[[pytest.MonkeyPatch, Rig], None]
Shown = Callable[[Record, int, str], bool]

STORES: dict[str, Any] = {"sqlite": SqliteStore, "postgres": PostgresStore}
STATEMENTS: dict[str, Any] = {"sqlite": SQLITE, "postgres": POSTGRES}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug, who has or had it, and the tests of the contract that must fail on it."""

    name: str
    plant: Patch
    killed_by: tuple[str, ...]


def reworded(statement: str, **words: tuple[str, str]) -> Patch:
    """A clause of a statement in other words, by store."""

    def plant(patch: pytest.MonkeyPatch, rig: Rig) -> None:
        old, new = words[rig.name]
        text = getattr(STATEMENTS[rig.name], statement)
        assert old in text, f"{statement}.sql of {rig.name} no longer says {old!r}"
        patch.setattr(STATEMENTS[rig.name], statement, text.replace(old, new))

    return plant


def whosever_it_is(statement: str, test: str) -> Mutant:
    """A read that does not look whose it is."""
    clause = "coalesce(:owner, "
    typed = "coalesce(%(owner)s, "
    words = {"sqlite": (clause, "coalesce(NULL, "), "postgres": (typed, "coalesce(NULL, ")}
    return Mutant(f"{statement} shows another owner's", reworded(statement, **words), (test,))


def anybodys(statement: str, test: str, **words: tuple[str, str]) -> Mutant:
    """A statement that does not look whose it is, in the words of each store."""
    return Mutant(f"{statement} looks at anybody's", reworded(statement, **words), (test,))


def anybodys_text(module: Any, names: Sequence[str], *tests: str) -> Mutant:
    """The same of statements that are put together in a module; all of them, since one alone is backed by the others."""

    def plant(patch: pytest.MonkeyPatch, rig: Rig) -> None:
        for name in names:
            text = getattr(module, name)
            assert "owner = :owner" in text, f"{name} no longer says whose"
            other = text.replace("owner = :owner", "owner = coalesce(owner, :owner)")
            patch.setattr(module, name, other)
        patch.setitem(job_lists._CONDITIONS, "owner", "{job}.owner = coalesce({job}.owner, :owner)")

    return Mutant(f"{', '.join(names)} look at anybody's", plant, tests)


def anybodys_tally(statement: str, test: str) -> Mutant:
    """The same of a statement that adds up tallies."""

    def plant(patch: pytest.MonkeyPatch, rig: Rig) -> None:
        tally: Any = tally_reads.TALLY
        text = tally[statement]
        assert "owner = :owner" in text, f"{statement} no longer says whose"
        other = text.replace("owner = :owner", "owner = coalesce(owner, :owner)")
        patch.setitem(tally, statement, other)

    return Mutant(f"{statement} adds up anybody's", plant, (test,))


def by_store(**patches: Patch) -> Patch:
    """A bug that stands in another statement of each store."""
    return lambda patch, rig: patches[rig.name](patch, rig)


def unguarded(shown: Shown) -> Patch:
    """Records that are ``shown`` pass with whatever token their job has now."""

    def plant(patch: pytest.MonkeyPatch, rig: Rig) -> None:
        store = STORES[rig.name]
        right = store.turn

        def turn(
            self: Any, records: Sequence[Record], order: ClaimOrder | None, *, by: int | None
        ) -> Turn:
            return right(self, [_passing(rig, one, shown) for one in records], order, by=by)

        patch.setattr(store, "turn", turn)

    return plant


def _passing(rig: Rig, record: Record, shown: Shown) -> Record:
    rows = rig.rows(f"SELECT token, state FROM perdure_jobs WHERE no = {record.no}")
    for token, state in rows:
        if shown(record, token, state):
            return replace(record, token=token)
    return record


def _is_rescue(record: Record) -> bool:
    return record.attempt is not None and record.attempt.kind == "worker_lost"


def worker_clock_leases(patch: pytest.MonkeyPatch, rig: Rig) -> None:
    """Whoever sweeps compares leases with its own clock, which is an hour ahead."""
    store = STORES[rig.name]
    right = store.mark_dead

    def mark_dead(self: Any, *, by: int) -> tuple[int, ...]:
        clock = self._connection._clock
        late_us = 3_600_000_000
        beaten_at = clock._passed_us
        self.beat([by])  # so that its own lease looks fresh to it
        clock._passed_us += late_us
        try:
            _as_if_steady(rig, by, to_us=_us(clock))
            return right(self, by=by)
        finally:
            clock._passed_us = beaten_at

    patch.setattr(store, "mark_dead", mark_dead)


def _us(clock: Any) -> int:
    return round(clock.now().timestamp() * 1_000_000)


def _as_if_steady(rig: Rig, judge: int, *, to_us: int) -> None:
    rig.damage(f"UPDATE perdure_workers SET beat_at = {to_us} WHERE no = {judge}")


def worker_clock_waits(patch: pytest.MonkeyPatch, rig: Rig) -> None:
    """A retry is due by the worker's own reckoning: when its attempt ended, for all it knows."""
    store = STORES[rig.name]
    right = store.turn

    def turn(
        self: Any, records: Sequence[Record], order: ClaimOrder | None, *, by: int | None
    ) -> Turn:
        now = self._connection._clock.now()
        return right(self, [_reckoned(one, now) for one in records], order, by=by)

    patch.setattr(store, "turn", turn)


def _reckoned(record: Record, now: Any) -> Record:
    if record.attempt is None or not record.delay_s:
        return record
    ended_at = record.attempt.claimed_at + timedelta(seconds=record.attempt.elapsed_s)
    delay_s = (ended_at - now).total_seconds() + record.delay_s
    return replace(record, delay_s=max(0.0, delay_s))


MUTANTS = (
    Mutant(
        "no guard on finish (Oban, PgQueuer, graphile-worker, SAQ)",
        unguarded(lambda record, token, state: True),
        (
            "test_a_record_with_another_token_writes_nothing_at_all",
            "test_a_writer_that_was_overtaken_writes_nothing",
            "test_a_word_about_a_job_that_has_ended_is_stale",
            "test_a_word_about_a_job_that_somebody_else_settled_is_stale",
            "test_a_stale_row_among_good_ones_is_only_itself",
            "test_a_late_word_about_the_life_before_is_stale",
        ),
    ),
    Mutant(
        "a guard on the state only (River, pg-boss, DBOS)",
        unguarded(lambda record, token, state: state == State.PROCESSING),
        (
            "test_a_record_with_another_token_writes_nothing_at_all",
            "test_a_writer_that_was_overtaken_writes_nothing",
        ),
    ),
    Mutant(
        "a dead worker's beat is accepted (PgQueuer)",
        reworded(
            "beat", sqlite=("AND dead_at IS NULL", ""), postgres=("AND w.dead_at IS NULL", "")
        ),
        (
            "test_a_beat_of_a_dead_worker_is_refused_and_changes_nothing",
            "test_a_worker_that_was_declared_dead_stays_dead",
        ),
    ),
    Mutant(
        "rescue from a stale read (River before #1373)",
        unguarded(lambda record, token, state: _is_rescue(record)),
        ("test_two_sweepers_settle_a_lost_job_once",),
    ),
    Mutant(
        "a crash is not counted (PgQueuer, Dramatiq)",
        reworded(
            "record",
            sqlite=("crashes = ?", "crashes = crashes + 0 * ?"),
            postgres=("crashes = coalesce(r.crashes, 0)", "crashes = j.crashes"),
        ),
        (
            "test_what_a_dead_worker_held_is_settled_by_another",
            "test_suspects_are_claimed_only_at_their_own_level",
            "test_counters_are_kept_as_they_are_told",
        ),
    ),
    Mutant(
        "a start is not counted at the claim (PgQueuer, Dramatiq)",
        reworded(
            "claim",
            sqlite=("starts = starts + 1", "starts = starts"),
            postgres=("starts = j.starts + 1", "starts = j.starts"),
        ),
        (
            "test_a_claim_raises_token_and_starts_and_names_the_holder",
            "test_every_further_claim_raises_them_again",
        ),
    ),
    Mutant(
        "a worker's clock is trusted with leases (Quartz)",
        worker_clock_leases,
        (
            "test_a_silent_worker_is_declared_dead_after_its_lease_and_not_before",
            "test_a_worker_that_beats_is_never_declared_dead",
            "test_after_the_store_was_away_nobody_is_declared_dead_at_once",
        ),
    ),
    Mutant(
        "a worker's clock is trusted with waits (Quartz)",
        worker_clock_waits,
        (
            "test_a_retry_waits_for_its_delay_by_the_stores_clock",
            "test_the_attempt_is_kept_as_it_was_told",
        ),
    ),
    Mutant(
        "a new life beside a living job of the same key",
        reworded(
            "rivals",
            sqlite=("(o.state = 'queued' OR o.state = 'processing')", "o.state = 'nowhere'"),
            postgres=("o.state IN ('queued', 'processing')", "o.state = 'nowhere'"),
        ),
        (
            "test_a_dead_letter_whose_key_is_queued_in_another_run_stays_dead",
            "test_a_key_is_alive_in_work_too_and_through_all_stages",
            "test_a_conflict_is_refused_and_says_with_whom",
        ),
    ),
    Mutant(
        "a key is driven again twice in one run",
        reworded(
            "driven",
            sqlite=("+o.redrive_run = ?2", "+o.redrive_run = -?2"),
            postgres=("k.redrive_run = r.run", "k.redrive_run = -r.run"),
        ),
        (
            "test_a_key_is_driven_again_once_in_a_run_however_that_ended",
            "test_within_one_call_who_is_alive_is_told_before_who_was_driven",
            "test_a_step_says_which_job_of_the_key_was_driven_again",
        ),
    ),
    Mutant(
        "a new life whose policies overrule the deadline that its caller brought",
        reworded(
            "revive",
            sqlite=("coalesce(deadline_us, :policies_us)", "coalesce(:policies_us, deadline_us)"),
            postgres=(
                "coalesce(j.deadline_us, b.policies_us)",
                "coalesce(b.policies_us, j.deadline_us)",
            ),
        ),
        (
            "test_each_life_has_the_time_that_policies_give_it_unless_its_caller_brought_one",
            "test_where_a_job_stood_in_line_says_nothing_of_how_long_it_may_take",
        ),
    ),
    Mutant(
        "a deadline as long as from the moment by which the job stood in line",
        reworded(
            "revive",
            sqlite=("coalesce(deadline_us, ", "coalesce(deadline_at - order_at, "),
            postgres=("coalesce(j.deadline_us, ", "coalesce(j.deadline_at - j.order_at, "),
        ),
        ("test_where_a_job_stood_in_line_says_nothing_of_how_long_it_may_take",),
    ),
    Mutant(
        "a begun job that forgets whose request it is",
        reworded(
            "claims",
            sqlite=("j.request_id", "NULL"),
            postgres=("j.request_id", "NULL"),
        ),
        ("test_a_begun_job_is_of_its_callers_request_in_a_closed_lane_too",),
    ),
    Mutant(
        "a run that has finished stays so, whatever becomes of its jobs",
        reworded(
            "runs_reopen",
            sqlite=("status IN ('completed', 'partial_success', 'failed')", "status = 'nothing'"),
            postgres=("status IN ('completed', 'partial_success', 'failed')", "status = 'nothing'"),
        ),
        (
            "test_a_run_that_had_finished_is_running_again_with_a_job_that_lives_again",
            "test_a_job_that_is_revived_by_its_key_opens_its_run_again",
            "test_a_new_life_opens_the_run_before_and_the_run_that_drives_it_again",
        ),
    ),
    Mutant(
        "a capture that whoever knows its id may read",
        reworded(
            "capture_by_id",
            sqlite=("j.owner = :owner", "j.owner = j.owner"),
            postgres=("j.owner = %(owner)s", "j.owner = j.owner"),
        ),
        (
            "test_a_capture_is_read_by_the_owner_of_its_job_and_by_operators",
            "test_a_job_of_nobody_has_captures_of_nobody",
        ),
    ),
    Mutant(
        "a success by the short way leaves the code of an earlier failure",
        reworded(
            "record_done",
            sqlite=("error_code = NULL, ", ""),
            postgres=("error_code = NULL,", ""),
        ),
        ("test_a_success_by_the_short_way_is_one_by_the_long_way_whatever_stood_there_before",),
    ),
    Mutant(
        "a batch of successes that does not keep what each of them said",
        reworded(
            "record_done",
            sqlite=("result = ?4", "result = coalesce(?4, '1')"),
            postgres=("s.words[d.said]", "s.words[1]"),
        ),
        ("test_successes_of_one_batch_have_each_their_own_words",),
    ),
    Mutant(
        "a list by change that hears of ends, and of no attempt that is tried again",
        by_store(
            sqlite=reworded(
                "records_matched",
                sqlite=(
                    "j.owner, j.pipeline",
                    "CASE j.token WHEN 1 THEN '' ELSE j.owner END, j.pipeline",
                ),
            ),
            postgres=reworded(
                "record",
                postgres=(
                    "nullif(d.owner, '')",
                    "CASE WHEN d.state <> 'queued' THEN nullif(d.owner, '') END",
                ),
            ),
        ),
        (
            "test_every_way_in_which_an_attempt_can_end_is_a_change_and_a_claim_is_none",
            "test_who_follows_the_changes_misses_none_and_sees_each_as_it_was_left",
        ),
    ),
    Mutant(
        "a list by change that does not learn of a new life",
        by_store(
            sqlite=reworded(
                "owned_put",
                sqlite=(
                    "changed_at = excluded.changed_at",
                    "changed_at = perdure_owned.changed_at",
                ),
            ),
            postgres=reworded(
                "revive",
                postgres=(
                    "changed_at = excluded.changed_at",
                    "changed_at = perdure_owned.changed_at",
                ),
            ),
        ),
        (
            "test_a_new_life_and_a_discard_are_changes",
            "test_a_job_that_is_enqueued_again_by_its_key_has_changed",
        ),
    ),
    Mutant(
        "a claim that does not say when the row was changed",
        reworded(
            "claim",
            sqlite=(", updated_at = :now", ""),
            postgres=(", updated_at = clock.now", ""),
        ),
        ("test_every_move_is_told_by_the_moment_of_the_last_change",),
    ),
    Mutant(
        "a job that whoever knows its id may cancel",
        reworded(
            "cancellable",
            sqlite=("owner = :owner", "owner = owner"),
            postgres=("o.owner = %(owner)s::text", "o.owner = o.owner"),
        ),
        (
            "test_another_owners_job_is_not_cancelled",
            "test_another_owners_running_job_is_not_cancelled",
        ),
    ),
    Mutant(
        "a job that whoever knows its id may run now",
        reworded(
            "run_now",
            sqlite=("owner = :owner", "owner = owner"),
            postgres=("o.owner = %(owner)s::text", "o.owner = o.owner"),
        ),
        ("test_another_owners_job_is_not_run_now",),
    ),
    Mutant(
        "a dead letter that whoever knows its id may retry",
        by_store(
            sqlite=reworded("dead_letter", sqlite=("owner = ?4", "owner = owner")),
            postgres=reworded(
                "revive_lock", postgres=("o.owner = %(owner)s::text", "o.owner = o.owner")
            ),
        ),
        ("test_another_owners_job_is_not_revived",),
    ),
    Mutant(
        "a dead letter that whoever knows its id may discard",
        reworded(
            "discard",
            sqlite=("owner = :owner", "owner = owner"),
            postgres=("o.owner = %(owner)s::text", "o.owner = o.owner"),
        ),
        ("test_another_owners_job_is_not_discarded",),
    ),
    Mutant(
        "a job that need not wait is run now",
        reworded(
            "run_now",
            sqlite=("AND ready = 0", "AND ready IS NOT NULL"),
            postgres=("AND o.ready = 0", "AND o.ready IS NOT NULL"),
        ),
        ("test_only_a_job_that_waits_for_its_time_is_run_now",),
    ),
    Mutant(
        "what is run now stands where it was to stand",
        reworded(
            "run_now",
            sqlite=(
                "rank_at = rank_at - CASE WHEN fair THEN 0 ELSE max(order_at - :now, 0) END,",
                "",
            ),
            postgres=("rank_at = j.rank_at - CASE WHEN j.fair THEN 0 ELSE held.sooner END,", ""),
        ),
        ("test_what_is_run_now_stands_in_line_from_then_on_and_a_retry_where_it_stood",),
    ),
    Mutant(
        "a cancel of a job that has ended",
        reworded(
            "cancellable",
            sqlite=("AND finished_at IS NULL", ""),
            postgres=("AND o.finished_at IS NULL", ""),
        ),
        ("test_only_an_open_job_that_has_not_moved_on_is_cancelled",),
    ),
    Mutant(
        "a payload that is replaced is lost",
        by_store(
            sqlite=reworded(
                "payload_keep", sqlite=("WHERE no = ?", "WHERE no = ? AND payload IS NULL")
            ),
            postgres=reworded(
                "revive", postgres=("WHERE payload IS NOT NULL", "WHERE payload IS NULL AND no < 0")
            ),
        ),
        (
            "test_a_new_life_may_bring_another_payload_and_the_old_one_is_kept",
            "test_each_payload_is_kept_with_the_life_that_it_was_for",
        ),
    ),
    Mutant(
        "a tally that forgets what was there",
        by_store(
            sqlite=reworded(
                "depths_add", sqlite=("ready = ready + excluded.ready", "ready = excluded.ready")
            ),
            postgres=reworded(
                "enqueue", postgres=("ready = t.ready + excluded.ready", "ready = excluded.ready")
            ),
        ),
        ("test_open_jobs_are_counted_by_owner",),
    ),
    Mutant(
        "a page of the feed begins behind the line in which the last one ended",
        reworded(
            "changes",
            sqlite=("no >= :line", "no > :line"),
            postgres=("BETWEEN %(line)s::bigint AND", "BETWEEN %(line)s::bigint + 1 AND"),
        ),
        (
            "test_a_page_may_end_anywhere_and_nothing_is_missed_or_told_twice",
            "test_more_that_comes_while_a_page_is_read_comes_after_it",
        ),
    ),
    Mutant(
        "the feed is let go whoever has not read it",
        reworded(
            "prune_changes",
            sqlite=("(SELECT place FROM perdure_change_marks ORDER BY no LIMIT 1)", "9e9"),
            postgres=(
                "xid < (SELECT min(pg_snapshot_xmin(place)) FROM perdure_change_marks)",
                "true",
            ),
        ),
        (
            "test_what_everybody_could_read_for_long_enough_goes_and_what_is_younger_stays",
            "test_the_feed_goes_in_steps",
        ),
    ),
    Mutant(
        "a bucket of requests without a bottom",
        reworded(
            "owner_rate_take",
            sqlite=("r.full_at <= :empty - :every", "r.full_at <= :empty"),
            postgres=("r.full_at <= %(empty)s - %(every)s", "r.full_at <= %(empty)s"),
        ),
        (
            "test_a_burst_is_let_in_and_who_comes_then_hears_how_long_to_wait",
            "test_who_is_refused_takes_nothing",
        ),
    ),
    whosever_it_is(
        "job_by_id", "test_by_its_id_another_owners_job_is_not_there_as_one_that_never_was"
    ),
    whosever_it_is(
        "run_by_id", "test_by_its_id_another_owners_run_is_not_there_as_one_that_never_was"
    ),
    whosever_it_is("bulk_by_id", "test_another_owners_bulk_operations_never_show"),
    whosever_it_is("bulks_list", "test_another_owners_bulk_operations_never_show"),
    whosever_it_is("bulks_running", "test_another_owners_bulk_operations_never_show"),
    *(
        anybodys(
            statement,
            "test_runs_are_found_by_what_is_said_of_them"
            if statement == "runs_page"
            else "test_another_owners_runs_never_show",
            sqlite=(":owner IS NULL OR owner = :owner", ":owner IS NULL OR owner = owner"),
            postgres=("OR owner = %(owner)s)", "OR owner = owner)"),
        )
        for statement in ("runs_page", "runs_live")
    ),
    anybodys(
        "run_found",
        "test_another_owners_runs_never_show",
        sqlite=("owner = :owner", "owner >= '' AND :owner = :owner"),
        postgres=("owner = %(owner)s", "owner >= '' AND %(owner)s::text = %(owner)s::text"),
    ),
    anybodys(
        "enqueued_before",
        "test_a_key_that_another_owner_has_finds_nothing",
        sqlite=("owner = ?", "coalesce(owner, ?) IS NOT NULL"),
        postgres=("b.owner = r.owner", "b.owner IS NOT NULL"),
    ),
    anybodys(
        "owner_rate",
        "test_owners_have_buckets_of_their_own",
        sqlite=("owner = :owner", "owner = (SELECT min(o.owner) FROM perdure_owner_rates AS o)"),
        postgres=(
            "owner = %(owner)s",
            "owner = (SELECT min(o.owner) FROM perdure_owner_rates AS o)",
        ),
    ),
    anybodys_text(job_lists, ("_OF_OWNER",), "test_another_owners_jobs_never_show"),
    anybodys_text(job_lists, ("_OF_KEY",), "test_a_key_is_found_by_whose_it_is"),
    anybodys_text(
        job_lists, ("_ENDED_ATTEMPTS", "_CHANGED_OTHERWISE"), "test_another_owners_jobs_never_show"
    ),
    anybodys_text(
        job_lists, ("_OWN_RUN",), "test_an_owners_jobs_in_a_run_are_found_whosever_run_it_is"
    ),
    anybodys_text(tally_reads, ("_NEWEST",), "test_only_what_the_filter_means_is_grouped"),
    anybodys_tally("deaths", "test_only_what_the_filter_means_is_grouped"),
    anybodys_tally("open_jobs", "test_open_jobs_are_counted_by_owner"),
)

# Statements that say whose a job is without being asked by anybody: what is compared is of the same row or job.
OWN_AFFAIR = {
    "deaths_fold": "the sums of all owners stand under none",
    "driven": "the same key of the same job",
    "rivals": "the same key of the same job",
    "fair_ends": "the order of an owner's own jobs",
    "fair_lines": "the order of an owner's own jobs",
    "prune_jobs": "the job that goes",
    "jobs_lock": "locks for the deeds above, which look again",
}

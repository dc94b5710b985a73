"""The change feed: who follows it hears of everything that happened, once, and of each job in its order."""

from typing import Any

from perdure.model.changes import Change, ChangeKind
from perdure.model.errors import CallerError, CursorTooOld
from perdure.model.gates import GateChange, GateState
from perdure.model.jobs import IfFailed, OnLost, Receipt
from perdure.model.limits import CHANGE_PAGE_ROWS
from perdure.model.nouns import replace
from perdure.model.outcomes import Death
from perdure.model.runs import RunStatus
from perdure.model.states import State
from perdure.testing.store_contract.attempt_ends import (
    advance,
    cancellation,
    failure,
    retry,
    success,
)
from perdure.testing.store_contract.fresh_store import DEED, TTL_S, OnAFreshStore, Place, raises

ACCEPTED, ENDED, TRIED = ChangeKind.JOB_ACCEPTED, ChangeKind.JOB_ENDED, ChangeKind.ATTEMPT_ENDED


class FeedFollower:
    """A reader that goes on after the cursor of each page."""

    def __init__(self, place: Place, *, limit: int = CHANGE_PAGE_ROWS) -> None:
        self._place = place
        self._limit = limit
        self.cursor = place.reader.changes().cursor

    def hear(self) -> list[Change]:
        """All that has come since the last call."""
        found: list[Change] = []
        while True:
            page = self._place.reader.changes(self.cursor, limit=self._limit)
            assert len(page.entries) <= self._limit
            found += page.entries
            self.cursor = page.cursor
            if not page.more:
                return found

    def jobs(self) -> list[tuple[str, ChangeKind, str, str | None, int]]:
        """As `heard`, of jobs: which, what, what they are now, how an attempt ended, and their token."""
        return [
            (one.id, one.kind, one.state, one.status, one.token)
            for one in self.hear()
            if one.kind.value.startswith(("job", "attempt"))
        ]

    def states(self, kind: ChangeKind) -> list[tuple[str, str]]:
        """As `heard`, of one kind: which, and what it has become."""
        return [(one.id, one.state) for one in self.hear() if one.kind is kind]


class ChangeFeedContract(OnAFreshStore):
    """What the feed tells, and how it is read.

    ``feed_rounds`` is for a store on a server that others use meanwhile: what they have open may keep lines, and
    cursors, for as many rounds of the upkeep longer.
    """

    feed_rounds = 0

    def test_who_begins_now_hears_only_of_what_comes_after(self) -> None:
        self.place.put()
        page = self.place.reader.changes()
        assert (page.entries, page.more) == ((), False)
        again = self.place.reader.changes(page.cursor)
        assert (again.entries, again.more) == ((), False)
        id = self.place.put().id
        (entry,) = self.place.reader.changes(again.cursor).entries
        assert (entry.id, entry.kind) == (id, ACCEPTED)

    def test_an_entry_says_whose_it_is_and_what_it_has_become(self) -> None:
        run = self.place.begin_run()
        self.clock.push(1)
        follower = FeedFollower(self.place)
        self.clock.push(1)
        claim = self.one_claim(owner="ann", run=run.no)
        accepted_at = self.clock.now()
        self.clock.push(2)
        self.place.settle(success(claim, self.worker), by=self.worker)
        entries = [one for one in follower.hear() if one.kind is not ChangeKind.WORKER_CHANGED]
        whose: dict[str, Any] = {
            "no": claim.no,
            "id": claim.id,
            "owner": "ann",
            "pipeline": "p",
            "stage": "one",
            "run": run.no,
        }
        accepted = {"state": "queued", "status": None, "token": 0, **whose}
        ended = {"state": "succeeded", "status": "success", "token": 2, **whose}
        assert entries == [
            Change(ACCEPTED, accepted_at, **accepted),
            Change(ENDED, self.clock.now(), **ended),
        ]

    def test_a_job_is_told_of_from_its_acceptance_to_its_end(self) -> None:
        follower = FeedFollower(self.place)
        claim = self.one_claim()
        self.place.settle(retry(claim, self.worker, delay_s=0.0), by=self.worker)
        (claim,) = self.place.take(self.worker)
        self.place.settle(advance(claim, self.worker, self.place.lanes["two"]), by=self.worker)
        (claim,) = self.place.take(self.worker)
        self.place.settle(failure(claim, self.worker), by=self.worker)
        assert follower.jobs() == [
            (claim.id, ACCEPTED, "queued", None, 0),
            (claim.id, TRIED, "queued", "retrying", 2),
            (claim.id, TRIED, "queued", "success", 4),
            (claim.id, ENDED, "failed", "failed", 6),
        ]

    def test_a_job_that_goes_on_at_once_is_told_with_the_token_of_its_new_claim(self) -> None:
        claim = self.one_claim()
        follower = FeedFollower(self.place)
        record = advance(claim, self.worker, self.place.lanes["two"], reclaim=True)
        (receipt,) = self.place.settle(record, by=self.worker)
        assert isinstance(receipt, Receipt)
        assert receipt.claim is not None
        (entry,) = follower.hear()
        assert (entry.kind, entry.stage, entry.state) == (TRIED, "one", "processing")
        assert (entry.status, entry.token) == ("success", receipt.claim.token)

    def test_what_ends_while_it_waits_has_no_attempt_to_tell_of(self) -> None:
        id = self.place.put(owner="ann").id
        follower = FeedFollower(self.place)
        job = self.place.see(id)
        (claim,) = self.place.take(self.worker)
        self.place.settle(replace(retry(claim, self.worker), delay_s=60.0), by=self.worker)
        job = self.place.see(id)
        record = cancellation(claim, None)
        waited = replace(record, token=job.token, attempt=None, counters=job.counters)
        self.place.settle(waited, by=None)
        last = follower.hear()[-1]
        assert (last.kind, last.state, last.status, last.owner) == (ENDED, "cancelled", None, "ann")

    def test_claims_and_what_falls_due_are_not_told(self) -> None:
        self.place.put_many(3)
        worker = self.worker
        follower = FeedFollower(self.place)
        for claim in self.place.take(worker, 2):
            self.place.settle(retry(claim, worker, delay_s=5.0), by=worker)
        follower.hear()
        self.clock.push(5)
        assert len(self.place.take(worker, 5)) == 3
        assert follower.hear() == []

    def test_what_is_sent_again_or_comes_too_late_is_told_once(self) -> None:
        worker = self.worker
        follower = FeedFollower(self.place)
        new = self.place.new(key="k")
        self.place.store.enqueue([new])
        self.place.store.enqueue([new, self.place.new(key="k")])
        (claim,) = self.place.take(worker)
        record = success(claim, worker)
        self.place.settle(record, by=worker)
        self.place.settle(record, by=worker)
        self.place.settle(failure(claim, worker), by=worker)
        assert [kind for _, kind, *_ in follower.jobs()] == [ACCEPTED, ENDED]

    def test_a_row_that_cannot_be_written_is_not_told_and_its_neighbours_are(self) -> None:
        self.place.put_many(2)
        one, two = self.place.take(self.worker, 2)
        follower = FeedFollower(self.place)
        bad = replace(success(one, self.worker), label="\0")
        self.place.settle(bad, success(two, self.worker), by=self.worker)
        written = [id for id in (one.id, two.id) if self.place.see(id).state is State.SUCCEEDED]
        assert [id for id, *_ in follower.jobs()] == written

    def test_a_begun_job_is_accepted_in_its_callers_hands(self) -> None:
        worker, new = self.worker, self.place.new(owner="ann")
        follower = FeedFollower(self.place)
        for _ in range(2):
            self.place.store.begin(new, worker=worker, hard_s=10.0, on_lost=OnLost.DROP)
        assert follower.jobs() == [(new.id, ACCEPTED, "processing", None, 1)]

    def test_a_page_may_end_anywhere_and_nothing_is_missed_or_told_twice(self) -> None:
        for limit in (1, 2, 3, 7, 8):
            follower = FeedFollower(self.place, limit=limit)
            ids = [one.id for one in self.place.put_many(4)]
            ids += [one.id for one in self.place.put_many(3)]
            ids += [self.place.put().id]
            assert sorted(id for id, *_ in follower.jobs()) == sorted(ids)
            assert follower.hear() == []

    def test_more_that_comes_while_a_page_is_read_comes_after_it(self) -> None:
        cursor = self.place.reader.changes().cursor
        first = [one.id for one in self.place.put_many(3)]
        page = self.place.reader.changes(cursor, limit=2)
        assert page.more
        last = self.place.put().id
        rest = self.place.reader.changes(page.cursor, limit=1)
        assert {one.id for one in (*page.entries, *rest.entries)} == set(first)
        after = self.place.reader.changes(rest.cursor)
        assert [one.id for one in after.entries] == [last]

    def test_a_cursor_may_be_used_again(self) -> None:
        cursor = self.place.reader.changes().cursor
        self.place.put_many(3)
        first = self.place.reader.changes(cursor, limit=2)
        again = self.place.reader.changes(cursor, limit=2)
        assert (again.entries, again.more) == (first.entries, True)
        (rest,) = self.place.reader.changes(first.cursor).entries
        assert self.place.reader.changes(again.cursor).entries == (rest,)

    def test_what_is_between_two_cursors_is_told_and_no_more(self) -> None:
        begin = self.place.reader.changes().cursor
        between = self.place.put().id
        end = self.place.reader.changes().cursor
        self.place.put()
        page = self.place.reader.changes(begin, until=end)
        assert ([one.id for one in page.entries], page.more) == ([between], False)
        assert self.place.reader.changes(page.cursor, until=end).entries == ()
        later = self.place.reader.changes().cursor
        backwards = self.place.reader.changes(later, until=begin)
        assert (backwards.entries, backwards.more) == ((), False)
        assert self.place.reader.changes(backwards.cursor).entries == ()

    # -- what happens to dead letters, runs, gates and workers --------------------------------

    def test_new_lives_and_discards_are_told(self) -> None:
        job = self.place.dead_letter(self.worker, owner="ann", key="k")
        follower = FeedFollower(self.place)
        assert isinstance(self.place.revive(job), Receipt)
        (claim,) = self.place.take(self.worker)
        self.place.settle(failure(claim, self.worker), by=self.worker)
        self.place.put(owner="ann", key="k", if_failed=IfFailed.RETRY)
        (claim,) = self.place.take(self.worker)
        self.place.settle(failure(claim, self.worker), by=self.worker)
        self.place.discard(self.place.see(job.id))
        self.place.discard(self.place.see(job.id))
        told = follower.hear()
        assert {one.owner for one in told} == {"ann"}
        assert [(one.kind, one.state, one.token) for one in told] == [
            (ChangeKind.JOB_REVIVED, "queued", job.token + 1),
            (ENDED, "failed", job.token + 3),
            (ChangeKind.JOB_REVIVED, "queued", job.token + 4),
            (ENDED, "failed", job.token + 6),
            (ChangeKind.JOB_DISCARDED, "failed", job.token + 7),
        ]

    def test_a_run_is_told_when_it_is_made_and_when_its_status_changes(self) -> None:
        follower = FeedFollower(self.place)
        run = self.place.begin_run(owner="ann")
        self.place.begin_run(owner="ann")
        self.clock.push(1)
        self.place.put(run=run.no)
        self.clock.push(1)
        assert self.place.change_run(run, RunStatus.PAUSED) is not None
        told = [one for one in follower.hear() if one.kind is ChangeKind.RUN_CHANGED]
        assert [(one.id, one.no, one.owner, one.state) for one in told] == [
            (run.id, run.no, "ann", "running"),
            (run.id, run.no, "ann", "paused"),
        ]

    def test_a_run_that_is_running_again_is_told(self) -> None:
        run = self.place.begin_run()
        self.place.control.seal_run(run.no)
        job = self.place.dead_letter(self.worker, run=run.no)
        assert self.place.change_run(run, RunStatus.FAILED) is not None
        follower = FeedFollower(self.place)
        self.clock.push(1)
        self.place.revive(job)
        assert follower.states(ChangeKind.RUN_CHANGED) == [(run.id, "running")]
        (claim,) = self.place.take(self.worker)
        self.place.settle(success(claim, self.worker), by=self.worker)
        assert self.place.change_run(run, RunStatus.COMPLETED) is not None
        self.clock.push(1)
        self.place.put(run=run.no)
        assert follower.states(ChangeKind.RUN_CHANGED) == [
            (run.id, "completed"),
            (run.id, "running"),
        ]

    def test_a_gate_is_told_with_its_generation(self) -> None:
        follower = FeedFollower(self.place)
        held = GateChange("vendor", 0, GateState.HELD, None)
        assert self.place.control.change_gate(held, DEED) is not None
        assert self.place.control.change_gate(held, DEED) is None
        flowing = GateChange("vendor", 1, GateState.FLOWING, None)
        assert self.place.control.change_gate(flowing, DEED) is not None
        told = [(one.kind, one.id, one.state, one.token) for one in follower.hear()]
        assert told == [
            (ChangeKind.GATE_CHANGED, "vendor", "held", 1),
            (ChangeKind.GATE_CHANGED, "vendor", "flowing", 2),
        ]

    def test_a_worker_is_told_when_it_begins_and_when_it_is_dead(self) -> None:
        follower = FeedFollower(self.place)
        judge, silent, stopped = (self.place.hire() for _ in range(3))
        self.place.store.end_worker(stopped, Death("exited", exit_status=0))
        self.place.store.end_worker(stopped, Death("exited", exit_status=0))
        self.place.live([judge], 2 * TTL_S + 1)
        assert self.place.store.mark_dead(by=judge) == (silent,)
        told = [(one.no, one.state) for one in follower.hear()]
        begun = [(worker, "alive") for worker in (judge, silent, stopped)]
        assert told == [*begun, (stopped, "dead"), (silent, "dead")]

    # -- cursors -----------------------------------------------------------------------------

    def test_what_is_no_cursor_is_refused_by_name(self) -> None:
        self.place.put()
        for text in (
            "",
            "0",
            "17",
            "nothing",
            "s1-",
            "p1-1:2:-3",
            "m1-x",
            "p1-9:1:",
            "s1-1-1-1",
            "\0",
        ):
            with raises(CallerError, saying="is not a cursor"):
                self.place.reader.changes(text)
            with raises(CallerError, saying="is not a cursor"):
                self.place.reader.changes(until=text)
        with raises(CallerError, saying="is not a cursor"):
            self.place.reader.changes("x" * 100_000)

    def test_a_cursor_can_be_handed_to_a_client(self) -> None:
        cursor = self.place.reader.changes().cursor
        self.place.put_many(3)
        inside = self.place.reader.changes(cursor, limit=1).cursor
        for text in (cursor, inside):
            assert all("!" <= letter <= "~" for letter in text)

    # -- retention ---------------------------------------------------------------------------

    def _upkeep(self, seconds: float, *, kept_s: float, every_s: float = 5.0) -> int:
        """Let time pass, while somebody prunes; how many lines went."""
        gone = 0
        for _ in range(round(seconds / every_s)):
            self.clock.push(every_s)
            gone += self.place.control.prune_changes(kept_s, limit=100)
        return gone

    def _words_of_refusal(self, cursor: str) -> str:
        """What is said because the cursor is too old, within the rounds that a shared server may need."""
        for rest in range(self.feed_rounds, -1, -1):
            try:
                self.place.reader.changes(cursor)
            except CursorTooOld as error:
                return str(error)
            if rest:
                self._upkeep(5, kept_s=60)
        raise AssertionError("a cursor that is too old is taken")

    def test_what_everybody_could_read_for_long_enough_goes_and_what_is_younger_stays(self) -> None:
        self._upkeep(5, kept_s=60)
        old = self.place.reader.changes().cursor
        self.place.put()
        assert self._upkeep(55, kept_s=60) == 0
        assert len(self.place.reader.changes(old).entries) == 1
        young = self.place.reader.changes().cursor
        id = self.place.put().id
        gone = self._upkeep(30, kept_s=60)
        assert gone == 1 or (self.feed_rounds and gone == 0)
        assert "no longer has all that came after" in self._words_of_refusal(old)
        assert [one.id for one in self.place.reader.changes(young).entries] == [id]

    def test_a_quiet_reader_is_told_when_it_was_away_too_long(self) -> None:
        self._upkeep(5, kept_s=60)
        self.place.put()
        cursor = self.place.reader.changes().cursor
        self.place.put()
        self._upkeep(150, kept_s=60)
        assert self._words_of_refusal(cursor)
        now = self.place.reader.changes().cursor
        id = self.place.put().id
        assert [one.id for one in self.place.reader.changes(now).entries] == [id]

    def test_the_feed_goes_in_steps(self) -> None:
        self._upkeep(5, kept_s=60)
        cursor = self.place.reader.changes().cursor
        for _ in range(5):
            self.place.put()
        self._upkeep(10, kept_s=60)
        self.clock.push(60)
        steps = [self.place.control.prune_changes(60, limit=2) for _ in range(4)]
        for _ in range(self.feed_rounds):
            self.clock.push(5)
            steps.append(self.place.control.prune_changes(60, limit=2))
        assert (sum(steps), max(steps)) == (5, 2)
        assert steps == [2, 2, 1, 0] or self.feed_rounds
        assert self._words_of_refusal(cursor)

    def test_who_follows_is_never_left_behind_by_pruning(self) -> None:
        follower = FeedFollower(self.place, limit=2)
        heard = []
        for _ in range(40):
            self.place.put()
            self._upkeep(5, kept_s=60)
            heard += follower.jobs()
        assert len(heard) == 40

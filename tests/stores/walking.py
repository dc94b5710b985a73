"""Acts of the walk, on several stores in step: enqueue, claim, settle, beat, die, reap."""

from typing import Any

from hypothesis import strategies as st

from perdure.model.jobs import Record
from perdure.model.outcomes import Death
from perdure.model.states import Move, State
from perdure.model.workers import NewWorker, Role
from perdure.testing.contract import records
from tests.stores.acting import Acting, Draw, Held
from tests.stores.sides import Side

DELAYS_S = st.sampled_from([0.0, 0.0, 1e-7, 1.5, 5.0, 60.0])
PASSING_S = st.sampled_from([1e-6, 1.0, 1.5, 5.0, 7.5, 7.500001, 15.0, 61.0, 3600.0])
ENDINGS = st.sampled_from(
    "success retry snooze failure failure crash release cancelled advance carry_on carry_on".split()
)
WRITERS = st.sampled_from(["its worker", "its worker", "its worker", "nobody", "another"])


class Walking(Acting):
    """What workers and their supervisors do."""

    # -- enqueueing --------------------------------------------------------------------------

    def act_enqueue(self, draw: Draw) -> None:
        jobs = [self.a_job(draw) for _ in range(draw(st.integers(1, 4)))]
        self.jobs += jobs
        self.enqueue(jobs)

    def act_enqueue_again(self, draw: Draw) -> None:
        """The same call, sent again."""
        if self.jobs:
            self.enqueue(draw(st.lists(st.sampled_from(self.jobs), min_size=1, max_size=3)))

    # -- workers -----------------------------------------------------------------------------

    def act_hire(self, draw: Draw) -> None:
        ttl_s = draw(st.sampled_from([15.0, 5.0, 3.000001]))
        role = draw(st.sampled_from(Role))
        name = f"worker {len(self.workers)}"

        def call(side: Side) -> None:
            side.learn("worker", name, side.store.add_worker(NewWorker(name, "host", role, ttl_s)))

        self.sides.each("hire", call)
        self.workers.append(name)
        self.promises.heard(name, ttl_s)

    def act_beat(self, draw: Draw) -> None:
        self._beat(draw(st.lists(st.sampled_from(self.workers), min_size=1, max_size=4)))

    def act_all_beat_for_a_while(self, draw: Draw) -> None:
        """So that judges become steady; one of them stays silent."""
        silent = self.a_worker(draw)
        for _ in range(5):
            self.clock.push(1.5)
            self._beat([name for name in self.workers if name != silent])

    def _beat(self, names: list[str]) -> None:
        def call(side: Side) -> Any:
            heard = side.store.beat([side.no("worker", name) for name in names])
            return sorted(str(side.name_of("worker", no)) for no in heard)

        for name in self.first(self.sides.each("beat", call)):
            self.promises.heard(name)

    def act_kill(self, draw: Draw) -> None:
        name = draw(st.sampled_from(self.workers))
        death = Death("exited", signal="SIGKILL")
        self.sides.each("kill", lambda side: side.store.end_worker(side.no("worker", name), death))
        self.promises.died(name)

    def act_reap(self, draw: Draw) -> None:
        """Declare dead, read what is lost, and settle it."""
        judge, limit = self.a_worker(draw), draw(st.integers(1, 4))

        def mark(side: Side) -> Any:
            dead = side.store.mark_dead(by=side.no("worker", judge))
            return sorted(str(side.name_of("worker", no)) for no in dead)

        for name in self.first(self.sides.each("mark dead", mark)):
            self.promises.died(name, silent=True)
        lost = self.sides.each("lost", lambda side: side.store.lost(limit=limit))
        if self.first(lost) and draw(st.integers(0, 3)):
            said = {
                name: [records.crash(one.claim, one.worker) for one in some]
                for name, some in lost.items()
            }
            self.turn(said, judge)

    # -- claiming and settling ---------------------------------------------------------------

    def act_claim(self, draw: Draw) -> None:
        worker, slots = self.a_worker(draw), draw(st.integers(1, 4))
        where = {
            "isolation": draw(st.sampled_from([0, 0, 0, 0, 0, 1, 2])),
            "few": draw(st.integers(0, 3)) == 0,
        }
        self.sides.each(
            "waiting", lambda side: side.store.waiting(self.order(side, worker, slots, **where))
        )
        turns = self.sides.each(
            "claim",
            lambda side: side.store.turn(
                [], self.order(side, worker, slots, **where), by=side.no("worker", worker)
            ),
        )
        dead = self.first(turns) == "raised WorkerDead"
        assert dead == (worker in self.promises.dead)
        if not dead:
            self.hold_all(worker, turns)

    def act_record(self, draw: Draw) -> None:
        """Say how claims ended; some of them ended long ago."""
        if not self.held:
            return
        some = draw(st.lists(st.sampled_from(self.held[-8:]), min_size=1, max_size=3))
        ended = {one.id: (one, draw(ENDINGS), draw(DELAYS_S)) for one in some}
        who = draw(WRITERS)
        writer = some[0].worker if who == "its worker" else None
        if who == "another":
            writer = self.a_worker(draw)
        said = {
            side.name: [self._ended(side, *one) for one in ended.values()]
            for side in self.sides.all
        }
        for place in range(len(ended)):
            self.sent.append(({name: words[place] for name, words in said.items()}, writer))
        self.turn(said, writer, draw(st.integers(0, 2)))

    def _ended(self, side: Side, held: Held, end: str, delay_s: float) -> Record:
        claim, worker = held.claims[side.name], side.no("worker", held.worker)
        if end in ("advance", "carry_on"):
            if claim.stage == "two" or claim.pipeline != "p":
                return records.success(claim, worker)
            lane = side.no("lane", "two")
            return records.advance(claim, worker, lane, reclaim=end == "carry_on")
        if end in ("retry", "snooze"):
            delayed: Record = getattr(records, end)(claim, worker, delay_s=delay_s)
            return delayed
        plain: Record = getattr(records, end)(claim, worker)
        return plain

    def act_send_again(self, draw: Draw) -> None:
        """A record whose answer was lost."""
        if self.sent:
            said, writer = draw(st.sampled_from(self.sent[-8:]))
            self.turn({name: [one] for name, one in said.items()}, writer, draw(st.integers(0, 1)))

    def act_cancel(self, draw: Draw) -> None:
        """A person cancels what waits; what is in work is cancelled by a record like any other."""
        if not self.jobs:
            return
        id, off_by = draw(st.sampled_from(self.jobs)).id, draw(st.sampled_from([0, 0, 0, -1]))
        job = self.sides.first.reader.job(id)
        if job is None or job.state is not State.QUEUED:
            return

        def word(side: Side) -> Record:
            seen = side.reader.job(id)
            assert seen is not None
            return Record(
                no=seen.no, id=id, token=seen.token + off_by, move=Move.CANCEL,
                state=State.CANCELLED, stage=seen.stage, lane=seen.lane, counters=seen.counters,
                past=seen.past, isolation=seen.isolation, error_message="cancelled",
            )  # fmt: skip

        self.turn({side.name: [word(side)] for side in self.sides.all}, None)

    # -- time and looks ----------------------------------------------------------------------

    def act_pass_time(self, draw: Draw) -> None:
        self.clock.push(draw(PASSING_S))

    def act_look(self, draw: Draw) -> None:
        worker = draw(st.sampled_from(self.workers))

        def held(side: Side) -> Any:
            found = side.store.held(side.no("worker", worker))
            return {str(side.name_of("job", no)): token for no, token in found.items()}

        self.sides.each("held", held)
        self.sides.each(
            "claims held", lambda side: side.store.claims_held(side.no("worker", worker))
        )
        self.sides.each("suspects", lambda side: sorted(side.store.suspects()))
        self.sides.each("due", lambda side: side.reader.schedules(due=True))

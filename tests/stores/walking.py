"""Acts of the walk, on several stores in step: enqueue, claim, settle, beat, die, reap."""

from random import Random
from typing import Any

from perdure.model.gates import GateChange, GateState, Probe, Slices
from perdure.model.jobs import Capture, Record
from perdure.model.nouns import replace
from perdure.model.operations import Deed
from perdure.model.outcomes import Death
from perdure.model.states import Move, State
from perdure.model.workers import NewWorker, Role
from perdure.testing.store_contract import attempt_ends
from tests.stores.acting import Acting, Held
from tests.stores.sides import Side

DELAYS_S = [0.0, 0.0, 1e-7, 1.5, 5.0, 60.0]
PASSING_S = [1e-6, 1.0, 1.5, 5.0, 7.5, 7.500001, 15.0, 61.0, 3600.0]
ENDINGS = [
    "success",
    "retry",
    "snooze",
    "failure",
    "failure",
    "crash",
    "release",
    "cancellation",
    "advance",
    "carry_on",
    "carry_on",
]
WRITERS = ["its worker", "its worker", "its worker", "nobody", "another"]


class Walking(Acting):
    """What workers and their supervisors do."""

    # -- enqueueing --------------------------------------------------------------------------

    def act_enqueue(self, chance: Random) -> None:
        jobs = [self.a_job(chance) for _ in range(chance.randint(1, 4))]
        self.jobs += jobs
        self.enqueue(jobs)

    def act_enqueue_again(self, chance: Random) -> None:
        """The same call, sent again."""
        live = {None, *self.live_runs()}
        known = [job for job in self.jobs if job.run in live]
        if known:
            self.enqueue(chance.choices(known, k=chance.randint(1, 3)))

    # -- workers -----------------------------------------------------------------------------

    def act_hire(self, chance: Random) -> None:
        ttl_s = chance.choice([15.0, 5.0, 3.000001])
        role = chance.choice(list(Role))
        name = f"worker {len(self.workers)}"

        def call(side: Side) -> None:
            side.learn("worker", name, side.store.add_worker(NewWorker(name, "host", role, ttl_s)))

        self.sides.each("hire", call)
        self.workers.append(name)
        self.promises.heard(name, ttl_s)

    def act_beat(self, chance: Random) -> None:
        self._beat(chance.choices(self.workers, k=chance.randint(1, 4)))

    def act_all_beat_for_a_while(self, chance: Random) -> None:
        """So that judges become steady; one of them stays silent."""
        silent = self.a_worker(chance)
        for _ in range(5):
            self.clock.push(1.5)
            self._beat([name for name in self.workers if name != silent])

    def _beat(self, names: list[str]) -> None:
        def call(side: Side) -> Any:
            heard = side.store.beat([side.no("worker", name) for name in names])
            return sorted(str(side.name_of("worker", no)) for no in heard)

        for name in self.first(self.sides.each("beat", call)):
            self.promises.heard(name)

    def act_kill(self, chance: Random) -> None:
        name = chance.choice(self.workers)
        death = Death("exited", signal="SIGKILL")
        self.sides.each("kill", lambda side: side.store.end_worker(side.no("worker", name), death))
        self.promises.died(name)

    def act_reap(self, chance: Random) -> None:
        """Declare dead, read what is lost, and settle it."""
        judge, limit = self.a_worker(chance), chance.randint(1, 4)

        def mark(side: Side) -> Any:
            dead = side.store.mark_dead(by=side.no("worker", judge))
            return sorted(str(side.name_of("worker", no)) for no in dead)

        for name in self.first(self.sides.each("mark dead", mark)):
            self.promises.died(name, silent=True)
        lost = self.sides.each("lost", lambda side: side.store.lost_claims(limit=limit))
        if self.first(lost) and chance.randint(0, 3):
            said = {
                name: [attempt_ends.crash(one.claim, one.worker) for one in some]
                for name, some in lost.items()
            }
            self.turn(said, judge)

    # -- claiming and settling ---------------------------------------------------------------

    def act_claim(self, chance: Random) -> None:
        worker, slots = self.a_worker(chance), chance.randint(1, 4)
        where = {
            "isolation": chance.choice([0, 0, 0, 0, 0, 1, 2]),
            "few": chance.randint(0, 3) == 0,
            "parts": chance.choice([(), (), (slots,), (0, slots), (1, 0, slots - 1)]),
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

    def act_probe(self, chance: Random) -> None:
        """A gate that is held, mostly, lets one job through."""
        name, worker = chance.choice(["vendor", "vendor", "account"]), self.a_worker(chance)
        isolation, off_by = chance.choice([0, 0, 0, 1]), chance.choice([0, 0, 0, 1])

        def call(side: Side) -> Any:
            known = side.reader.gate(name)
            generation = (0 if known is None else known.generation) + off_by
            parent = "account" if name == "vendor" else None
            change = GateChange(name, generation, GateState.PROBING, parent, 2.5)
            order = self.order(side, worker, 1, isolation=isolation)
            return side.store.probe(order, change, Deed("ann", "to see whether it is back"))

        probes = self.sides.each("probe", call)
        answer = self.first(probes)
        assert (answer == "raised WorkerDead") == (worker in self.promises.dead)
        if isinstance(answer, Probe):
            self.hold(worker, {name: probe.claim for name, probe in probes.items()})

    def act_look_at_gates(self, chance: Random) -> None:
        worker = self.a_worker(chance)
        names = chance.choice([["vendor"], ["account", "vendor"], ["nobody"], []])
        samples = {name: f"[{chance.randint(0, 9)}]" for name in names if chance.randint(0, 2)}
        self.sides.each(
            "look at gates",
            lambda side: side.store.look_at_gates(
                names, worker=side.no("worker", worker), samples=samples
            ),
        )

    def act_change_slices(self, chance: Random) -> None:
        name, off_by = chance.choice(["vendor", "account"]), chance.choice([0, 0, 0, 1])
        told = f"[{chance.randint(0, 9)}]"

        def call(side: Side) -> bool:
            look = side.store.look_at_gates([name], worker=0, samples={})
            known = {one.gate: one.generation for one in look.slices}.get(name, 0)
            return side.store.change_slices(Slices(name, known + off_by, told))

        self.sides.each("change slices", call)

    def act_record(self, chance: Random) -> None:
        """Say how claims ended; some of them ended long ago."""
        if not self.held:
            return
        some = chance.choices(self.held[-8:], k=chance.randint(1, 3))
        ended = {
            one.lease: (one, chance.choice(ENDINGS), chance.choice(DELAYS_S), self._said(chance))
            for one in some
        }
        who = chance.choice(WRITERS)
        writer = some[0].worker if who == "its worker" else None
        if who == "another":
            writer = self.a_worker(chance)
        said = {
            side.name: [self._ended(side, *one) for one in ended.values()]
            for side in self.sides.all
        }
        for place in range(len(ended)):
            self.sent.append(({name: words[place] for name, words in said.items()}, writer))
        self.turn(said, writer, chance.randint(0, 2))

    def _said(self, chance: Random) -> dict[str, Any]:
        """What an attempt tells beside how it ended: what it used up, how it failed, what it put aside."""
        told: dict[str, Any] = {"elapsed_s": chance.choice([0.25, 0.5, 2.0])}
        told["called"] = chance.random() < 0.5
        if chance.random() < 0.4:
            told |= {"tokens_in": chance.randint(0, 9), "tokens_out": 2, "cost_nusd": 10**9 + 1}
        names = [self.new_name() for _ in range(chance.choice([0, 0, 0, 1, 2]))]
        kept_s = chance.choice([None, 5.0, 60.0])
        return {
            "attempt": told,
            "failure": {
                "error_code": chance.choice([None, "E1", "E2"]),
                "error_detail": chance.choice([None, "the host was away"]),
                "fingerprint": chance.choice([None, "f1", "f2"]),
                "error_kind": chance.choice(["network", "input_invalid", None]),
            },
            "captures": tuple(
                Capture(name, "raw", "text/plain", name.encode(), 99, kept_s) for name in names
            ),
        }

    def _ended(
        self, side: Side, held: Held, end: str, delay_s: float, said: dict[str, Any] | None = None
    ) -> Record:
        """The record of a claim, with all that is said of it."""
        record = self._plain(side, held, end, delay_s)
        if said is None or record.attempt is None:
            return record
        failed = said["failure"] if record.state is State.FAILED else {}
        attempt = replace(record.attempt, **said["attempt"])
        if failed:
            attempt = replace(attempt, kind=failed["error_kind"], code=failed["error_code"])
        return replace(record, attempt=attempt, captures=said["captures"], **failed)

    def _plain(self, side: Side, held: Held, end: str, delay_s: float) -> Record:
        claim, worker = held.claims[side.name], side.no("worker", held.worker)
        if end in ("advance", "carry_on"):
            if claim.stage == "two" or claim.pipeline != "p":
                return attempt_ends.success(claim, worker)
            lane = side.no("lane", "two")
            return attempt_ends.advance(claim, worker, lane, reclaim=end == "carry_on")
        if end in ("retry", "snooze"):
            delayed: Record = getattr(attempt_ends, end)(claim, worker, delay_s=delay_s)
            return delayed
        plain: Record = getattr(attempt_ends, end)(claim, worker)
        return plain

    def fail_all(self) -> None:
        """Make dead letters of all that is held."""
        for held in self.held:
            said = {side.name: [self._ended(side, held, "failure", 0.0)] for side in self.sides.all}
            self.turn(said, held.worker)

    def act_send_again(self, chance: Random) -> None:
        """A record whose answer was lost."""
        if self.sent:
            said, writer = chance.choice(self.sent[-8:])
            self.turn({name: [one] for name, one in said.items()}, writer, chance.randint(0, 1))

    def act_cancel(self, chance: Random) -> None:
        """A person cancels what waits; what is in work is cancelled by a record like any other."""
        if not self.jobs:
            return
        id, off_by = chance.choice(self.jobs).id, chance.choice([0, 0, 0, -1])
        owner, by_hand = chance.choice([None, None, "ann"]), chance.random() < 0.7
        job = self.sides.first.reader.job(id)
        if job is None or job.state is not State.QUEUED:
            return

        def word(side: Side) -> Record:
            seen = side.reader.job(id)
            assert seen is not None
            return Record(
                no=seen.no,
                id=id,
                token=seen.token + off_by,
                move=Move.CANCEL,
                state=State.CANCELLED,
                stage=seen.stage,
                lane=seen.lane,
                counters=seen.counters,
                past=seen.past,
                isolation=seen.isolation,
                error_message="cancelled",
            )

        if by_hand:
            self.sides.each(
                "cancel",
                lambda side: side.control.cancel([word(side)], Deed("ann", "so"), owner=owner),
            )
            return
        self.turn({side.name: [word(side)] for side in self.sides.all}, None)

    # -- time and looks ----------------------------------------------------------------------

    def act_pass_time(self, chance: Random) -> None:
        self.clock.push(chance.choice(PASSING_S))

    def act_look(self, chance: Random) -> None:
        worker = chance.choice(self.workers)

        def held(side: Side) -> Any:
            found = side.store.tokens_held(side.no("worker", worker))
            return {str(side.name_of("job", no)): token for no, token in found.items()}

        self.sides.each("held", held)
        self.sides.each(
            "claims held", lambda side: side.store.claims_held(side.no("worker", worker))
        )
        self.sides.each("suspects", lambda side: sorted(side.store.suspects()))
        self.sides.each("due", lambda side: side.reader.schedules(due=True))

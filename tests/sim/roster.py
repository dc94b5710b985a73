"""Judges what the store says of workers: beats, deaths, and what they hold."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from perdure.model.jobs import Claim, LostClaim, Overrun
from perdure.model.outcomes import Death
from perdure.model.workers import NewWorker, Role
from tests.sim.ledger import JobAccount, WorkerAccount

if TYPE_CHECKING:
    from tests.sim.checker import Checker


class Roster:
    """The judge of leases."""

    def __init__(
        self, checker: "Checker", concurrency: dict[Role, int], troubled: Callable[[int], bool]
    ) -> None:
        self._checker = checker
        self._ledger = checker.ledger
        self._world = checker.world
        self._concurrency = concurrency
        self._troubled = troubled
        self.quiet_us: int | None = None  # from when on nothing but the work itself goes wrong
        self.rescue_s_max = 0.0

    def check_rescue(self, job: JobAccount, what: str) -> None:
        """Once nothing goes wrong any more, the jobs of the dead are found in time."""
        assert job.holder is not None
        worker = self._ledger.workers[job.holder]
        if self.quiet_us is None or worker.registered.role is Role.CALLER:
            return
        known_us = worker.known_us or 0
        since_us = max(self.quiet_us, known_us if worker.gone_us is None else worker.gone_us)
        late_s = (self._world.now_us - since_us) / 1e6
        if late_s > self.rescue_s_max:
            self._checker.broken(
                "L2", f"{what} came {late_s:g} s after its worker's end, not {self.rescue_s_max:g}"
            )
        self._world.seen["rescues in time"] += 1

    def _add_worker(self, no: int, worker: NewWorker) -> None:
        self._ledger.workers[no] = WorkerAccount(
            no, worker, self._concurrency[worker.role], self._world.now_us
        )

    def _beat(self, accepted: frozenset[int], workers: Sequence[int]) -> None:
        for no in workers:
            worker = self._ledger.workers[no]
            if no in accepted and worker.death is not None:
                self._checker.broken("S4", f"a beat of worker {no} was accepted, it is dead")
            if no not in accepted and worker.death is None:
                self._checker.broken("E1", f"a beat of worker {no} was refused, it is alive")
            if no in accepted:
                worker.beat_us, worker.excused = self._world.now_us, self._troubled(no)
            else:
                self._world.seen["beats refused"] += 1

    def _mark_dead(self, dead: Sequence[int], *, by: int) -> None:
        judge = self._ledger.workers[by]
        for no in dead:
            worker = self._ledger.workers[no]
            silent_us = self._world.now_us - worker.beat_us
            what = f"worker {by} declared worker {no} dead after {silent_us / 1e6:g} s of silence"
            if worker.death is not None or judge.death is not None:
                self._checker.broken("S6", f"{what}; one of them was dead already")
            if silent_us <= worker.ttl_us:
                self._checker.broken("S6", f"{what}; its lease is {worker.ttl_us / 1e6:g} s")
            if not worker.excused:
                self._checker.broken("S6", f"{what}; it was well, only the store was away")
            self._world.seen["workers declared dead"] += 1
            worker.die(Death("silent"), self._world.now_us)

    def _end_worker(self, done: bool, worker: int, death: Death) -> None:
        account = self._ledger.workers[worker]
        if done != (account.death is None):
            self._checker.broken(
                "S4", f"the end of worker {worker} was news: {done}, known {account.death}"
            )
        if done:
            self._world.seen["deaths reported"] += 1
            left = [
                (no, token)
                for no, token in account.held.items()
                if (worker, no, token) not in self._checker.told_busy  # it waits for no transaction
            ]
            if death.exit_status == 0 and left:
                self._checker.broken("L6", f"worker {worker} left holding {sorted(left)}")
            account.die(death, self._world.now_us)

    def _lost_claims(
        self, lost: list[LostClaim], *, limit: int, lanes: Sequence[int] | None = None
    ) -> None:
        for one in lost:
            worker = self._ledger.workers[one.worker]
            if worker.death is None or worker.held.get(one.claim.no) != one.claim.token:
                self._checker.broken("S5", f"#{one.claim.no}/{one.claim.token} was called lost")
        self._world.seen["claims found lost"] += len(lost)

    def _overrun(
        self, found: Sequence[Overrun], limits_s: Mapping[int, float], *, limit: int
    ) -> None:
        """What hangs in the hands of the living, and for longer than it may be held."""
        for one in found:
            job, worker = self._ledger.jobs[one.claim.no], self._ledger.workers[one.worker]
            held_s = (self._world.now_us - job.claimed_us) / 1e6
            stage = self._checker.catalogue.stage(job.pipeline, job.stage)
            assert stage is not None
            if worker.death is not None or worker.held.get(job.no) != one.claim.token:
                self._checker.broken(
                    "S5", f"#{job.no}/{one.claim.token} was called overrun, it is not held"
                )
            own = job.hard_us is not None
            if own and self._world.now_us <= (job.hard_us or 0):
                self._checker.broken(
                    "S5", f"#{job.no}/{one.claim.token} was overrun before its own limit"
                )
            if not own and held_s <= stage.timeout_s + self._checker.overrun_s:
                self._checker.broken(
                    "S5", f"#{job.no}/{one.claim.token} was overrun after {held_s:g} s"
                )
            self._checker.hung.add((job.no, one.claim.token))

    def _tokens_held(self, held: dict[int, int], worker: int) -> None:
        if held != self._ledger.workers[worker].held:
            self._checker.broken(
                "S15", f"worker {worker} holds {self._ledger.workers[worker].held}: {held}"
            )

    def _claims_held(self, claims: list[Claim], worker: int) -> None:
        self._tokens_held({claim.no: claim.token for claim in claims}, worker)

"""Operators: at any point they cancel and retry jobs, pause and resume lanes and turn gates, over a bad wire.

What they do to runs and to dead letters in bulk is in `overseers.py`.
"""

from collections.abc import Callable
from datetime import timedelta

from perdure.engine.gates.changes import hold_by_person, probe_by_person, release_by_person
from perdure.engine.operate.revival import FAILED_STAGE, FROM_START, Restart, admit_correction
from perdure.engine.operate.single_jobs import cancel, retry, run_now
from perdure.engine.stages import Stage
from perdure.model.errors import (
    NotCancellable,
    NotChangeable,
    NotRetriable,
    StoreBusy,
    UnknownName,
)
from perdure.model.operations import BulkVerb, LaneScope
from perdure.model.states import State
from perdure.rules.gate.gate import Step
from tests.sim.connected import Connected
from tests.sim.feeds import RUN_DEEDS
from tests.sim.ledger import JobAccount
from tests.sim.outside import GATE_DEEDS
from tests.sim.overseers import AWAY as _AWAY, DEED as _DEED, Overseer
from tests.sim.stages import LONG, SHORT
from tests.sim.strand import Strand

VERBS = ("cancel", "retry", "redrive", "discard", "pause", *GATE_DEEDS, *RUN_DEEDS)

_SCOPES = (
    (LaneScope.PIPELINE, LONG),
    (LaneScope.PIPELINE, SHORT),
    (LaneScope.QUEUE, "q"),
)


class Operator(Overseer):
    """Somebody who does one thing again and again, until the chaos is over."""

    def body(self, sides: Connected, strand: Strand) -> None:
        """At random times."""
        act: Callable[[Connected, Strand], None] = getattr(self, f"_{self._verb}")
        while self._world.chaos:
            strand.sleep(self._world.rng.expovariate(self._setup.strikes[self._verb]))
            if self._world.chaos:
                act(sides, strand)

    def _one_of(self, *states: State) -> JobAccount | None:
        """A job that is in such a state, as far as anybody knows; sometimes one that is not."""
        jobs = [one for one in self._checker.ledger.jobs.values() if not one.pruned]
        if self._world.rng.random() < 0.8:
            jobs = [one for one in jobs if one.state in states]
        return self._world.rng.choice(jobs) if jobs else None

    def _cancel(self, sides: Connected, strand: Strand) -> None:
        """Cancel a job; now and then, those of a filter."""
        if self._world.rng.random() < 0.05:
            self._begun(sides, strand, BulkVerb.CANCEL)
            return
        job = self._one_of(State.QUEUED, State.PROCESSING)
        if job is None:
            return
        self._world.struck["cancel"] += 1
        try:
            cancel(
                sides.control,
                sides.reader,
                self._catalogue,
                job.id,
                deed=_DEED,
                observers=self._observers,
                rest=strand.sleep,
            )
        except StoreBusy:
            self._said("cancels of jobs in an open transaction")
        except _AWAY:
            self._said("cancels of unknown effect")
        except (NotCancellable, UnknownName):
            self._said("cancels too late")
        else:
            self._said("cancels acknowledged")
            self._checker.cancelled(job.id)

    def _retry(self, sides: Connected, strand: Strand) -> None:
        """Retry a job, perhaps with another payload; or hurry one that waits."""
        if self._world.rng.random() < 0.3:
            self._hurry(sides, strand)
            return
        job = self._one_of(State.FAILED)
        if job is None:
            return
        self._world.struck["retry"] += 1
        stages = [stage.name for stage in self._stages(job)]
        named = Restart(self._world.rng.choice(stages))
        restart = self._world.rng.choice((FAILED_STAGE, FAILED_STAGE, FROM_START, named))
        payload_json = None
        if self._world.rng.random() < 0.3:
            item = {"n": -self._world.rng.randint(1, 9), "poison": None}
            restart, payload_json = (
                FAILED_STAGE,
                admit_correction(self._catalogue, job.pipeline, item),
            )
        try:
            retry(
                sides.control,
                sides.reader,
                self._catalogue,
                job.id,
                deed=_DEED,
                restart=restart,
                payload_json=payload_json,
                observers=self._observers,
            )
        except _AWAY:
            self._said("retries of unknown effect")
        except (NotRetriable, UnknownName):
            self._said("retries refused")
        else:
            self._said("retries acknowledged")

    def _hurry(self, sides: Connected, strand: Strand) -> None:
        """Run a job now, or all that wait."""
        if self._world.rng.random() < 0.2:
            self._begun(sides, strand, BulkVerb.RUN_NOW)
            return
        now_us, known = self._world.now_us, self._checker.ledger.jobs.values()
        later = [one for one in known if one.state is State.QUEUED and one.due_us > now_us]
        job = self._world.rng.choice(later) if later else self._one_of(State.QUEUED)
        if job is None:
            return
        try:
            run_now(sides.control, sides.reader, job.id, deed=_DEED, observers=self._observers)
        except _AWAY:
            self._said("run nows of unknown effect")
        except (NotChangeable, UnknownName):
            self._said("run nows refused")

    def _stages(self, job: JobAccount) -> tuple[Stage, ...]:
        line = self._catalogue.pipeline(job.pipeline)
        assert line is not None
        return line.stages

    def _pause(self, sides: Connected, strand: Strand) -> None:
        """Close some lanes, and open them again after a while, whatever the wire says."""
        scope, name = self._world.rng.choice(_SCOPES)
        self._world.struck["pause"] += 1
        try:
            sides.control.pause(scope, name, _DEED)
        except _AWAY:
            self._said("pauses of unknown effect")
        strand.sleep(self._setup.ttl_s * self._world.rng.uniform(0.1, 2.0))
        while True:  # nobody forgets what he has closed
            try:
                sides.control.resume(scope, name, _DEED)
            except _AWAY:
                strand.sleep(self._world.rng.uniform(0.1, 2.0))
            else:
                self._world.struck["resume"] += 1
                return

    def _gate_hold(self, sides: Connected, strand: Strand) -> None:
        """Hold a gate, for a while or until somebody releases it."""
        for_s = self._world.rng.choice((None, 0.5, self._setup.ttl_s))
        self._turned(
            sides,
            "gate_hold",
            lambda name: hold_by_person(
                sides.reader,
                sides.control,
                name,
                _DEED,
                until=None if for_s is None else sides.reader.now() + timedelta(seconds=for_s),
            ),
        )

    def _gate_probe(self, sides: Connected, strand: Strand) -> None:
        self._turned(
            sides,
            "gate_probe",
            lambda name: probe_by_person(sides.reader, sides.control, name, _DEED),
        )

    def _gate_release(self, sides: Connected, strand: Strand) -> None:
        self._turned(
            sides,
            "gate_release",
            lambda name: release_by_person(sides.reader, sides.control, name, _DEED),
        )

    def _turned(self, sides: Connected, kind: str, turn: Callable[[str], Step]) -> None:
        upstreams = self._setup.outside.upstreams
        names = [one for up in upstreams for one in (up.name, up.credential) if one is not None]
        if not names:
            return
        closed = [one for one in names if not self._checker.ledger.gate(one).flowing]
        name = self._world.rng.choice(names if kind == "gate_hold" or not closed else closed)
        try:
            step = turn(name)
        except (*_AWAY, StoreBusy):
            self._said("deeds at a gate of unknown effect")
        else:
            self._world.struck[kind] += step.move is not None

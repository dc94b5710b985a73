"""What is promised whatever happens, checked after every step on what was told and on what can be read.

The names are those of the published list of invariants.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from perdure.model.jobs import Claim, Receipt, Settled
from perdure.model.states import TERMINAL, State
from perdure.model.views import AttemptView, JobView
from perdure.testing import VirtualClock
from tests.stores.sides import Side

_ENDS = {"success": State.SUCCEEDED, "failed": State.FAILED, "cancelled": State.CANCELLED}


class Promises:
    """What one store has told, and what follows from it."""

    def __init__(self, clock: VirtualClock) -> None:
        self.dead: set[str | None] = set()
        self._clock = clock
        self._accepted: set[str] = set()
        self._pruned = 0
        self._leases: dict[str, timedelta] = {}
        self._heard_at: dict[str, datetime] = {}
        self._written: set[tuple[int, int]] = set()

    # -- what was told -----------------------------------------------------------------------

    def accepted(self, ids: Iterable[str]) -> None:
        self._accepted |= set(ids)

    def heard(self, worker: str, ttl_s: float | None = None) -> None:
        """S4: nobody is heard who was declared dead."""
        assert worker not in self.dead, f"S4: {worker} is dead and was heard"
        self._heard_at[worker] = self._clock.now()
        if ttl_s is not None:
            self._leases[worker] = timedelta(seconds=ttl_s)

    def died(self, worker: str, *, silent: bool = False) -> None:
        """S6: nobody is declared silent within his lease."""
        if silent:
            silence = self._clock.now() - self._heard_at[worker]
            assert silence > self._leases[worker], f"S6: {worker} was heard {silence} ago"
            assert worker not in self.dead, f"S6: {worker} died twice"
        self.dead.add(worker)

    def claimed(self, claim: Claim) -> None:
        """S9: nothing begins before its time."""
        assert claim.claimed_at >= claim.due_at, f"S9: job {claim.id} began too early"

    def tokens(self, side: Side) -> dict[str, int]:
        """What each job's token is before a turn."""
        return {job.id: job.token for job in side.reader.jobs(limit=500)}

    def settled(self, answers: Iterable[Settled], before: dict[str, int]) -> None:
        """S3 and S5: what was written showed the token of that instant, and no token writes twice."""
        for answer in answers:
            if isinstance(answer, Receipt) and not answer.repeated:
                assert before[answer.id] == answer.token, f"S3: job {answer.id} was overwritten"
                place = (answer.no, answer.token)
                assert place not in self._written, f"S3: job {answer.id} was settled twice"
                self._written.add(place)

    # -- what can be read --------------------------------------------------------------------

    def check(self, seen: dict[str, Any]) -> None:
        jobs: list[JobView] = seen["jobs"]
        self._nothing_is_lost(jobs, seen["books"])
        for job in jobs:
            attempts = seen["attempts"][job.id]
            _ends_once(job, attempts)
            _counts_add_up(job, attempts)

    def _nothing_is_lost(self, jobs: list[JobView], books: Any) -> None:
        found = [job.id for job in jobs]
        assert len(found) == len(set(found)), "S1: a job is there twice"
        assert set(found) <= self._accepted, "S1: a job that nobody has accepted"
        gone = self._accepted - set(found)
        assert len(gone) == books.pruned - self._pruned, "S1: a job is gone that nobody has pruned"
        self._accepted -= gone
        self._pruned = books.pruned
        assert books.balanced, f"S15: {books}"


def _ends_once(job: JobView, attempts: list[AttemptView]) -> None:
    """S2: a life has one end, and nothing comes after it."""
    for life, some in groupby(attempts, key=lambda one: one.life):
        ends = [one.status in ("failed", "cancelled") for one in some]
        assert not any(ends[:-1]), f"S2: job {job.id} went on after its end in life {life}"
    if job.state is State.FAILED:
        last = attempts[-1]
        assert (last.life, last.status) == (job.life, "failed"), f"S2: job {job.id} failed silently"
    assert (job.finished_at is not None) == (job.state in TERMINAL), f"S2: job {job.id}"


def _counts_add_up(job: JobView, attempts: list[AttemptView]) -> None:
    """S7 and S8: every start is an attempt, and every crash is counted."""
    here = [one for one in attempts if one.life == job.life and one.stage == job.stage]
    running = job.state is State.PROCESSING
    assert job.counters.starts == len(here) + running, f"S7: starts of job {job.id}"
    for name in ("failures", "crashes", "snoozes", "releases"):
        counted = sum(one.counted == name for one in here)
        assert getattr(job.counters, name) == counted, f"S7, S8: {name} of job {job.id}"
    tokens = [one.token for one in attempts]
    assert tokens == sorted(set(tokens)), f"S3: tokens of job {job.id}"
    assert all(token < job.token for token in tokens), f"S3: the token of job {job.id}"

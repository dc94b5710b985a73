"""What running stages say of their progress, on its way to the observers.

It is the one thing that is told without being durable: a stage's own word, for people who watch. The
latest word of each job is kept, and told at most once a second by the thread that tells everything
else; a job that has ended says nothing more.
"""

import threading

from perdure.engine.attempt.context import Progress, Said
from perdure.engine.observe import Observers
from perdure.model.events import EventName
from perdure.model.jobs import Claim

_TELL_S = 1.0


class ProgressBoard:
    """The latest word of each running stage."""

    def __init__(self, observers: Observers) -> None:
        self._observers = observers
        self._one_at_a_time = threading.Lock()
        self._said: dict[int, tuple[Claim, Progress]] = {}
        self._told_at: float | None = None

    def note(self, claim: Claim, said: Said) -> None:
        """A stage has spoken; on whatever thread it runs. What is not of its progress is for others."""
        if isinstance(said, Progress):
            with self._one_at_a_time:
                self._said[claim.no] = (claim, said)

    def drop(self, claim: Claim) -> None:
        """The stage has ended; what becomes of it is told elsewhere."""
        with self._one_at_a_time:
            self._said.pop(claim.no, None)

    def once(self, now: float) -> None:
        """Tell what is new, if it is time."""
        if not self._said or (self._told_at is not None and now - self._told_at < _TELL_S):
            return
        self._told_at = now
        with self._one_at_a_time:
            said, self._said = self._said, {}
        for claim, progress in said.values():
            self._observers.tell(
                EventName.JOB_PROGRESSED,
                job_id=claim.id,
                request_id=claim.request_id,
                owner=claim.owner or None,
                pipeline=claim.pipeline,
                run=claim.run,
                stage=claim.stage,
                attempt=claim.counters.starts,
                done=progress.done,
                total=progress.total,
                note=progress.note or None,
            )

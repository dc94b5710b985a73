"""Dead letters as a user works through them: listed, grouped, driven again, discarded, exported."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from perdure.app.job_filters import check_chosen, dead_meant
from perdure.app.job_refs import job_at
from perdure.app.runs import Run
from perdure.app.session.session import Session
from perdure.app.session.waiting import wait_until
from perdure.engine.gates.upstreams import rate_per_s
from perdure.engine.operate.bulk_settings import BulkSettings
from perdure.engine.operate.eligible import Previewing, RedrivePreview
from perdure.engine.operate.revival import Revivals
from perdure.engine.payloads import decode
from perdure.model.errors import CallerError, NotRetriable, RunUnfinished, UnknownName
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.operations import BulkStatus, BulkView, Deed, LoggedRefusal
from perdure.model.states import State
from perdure.model.views import AttemptView, DeadGroup, JobView, Preview

_PREVIEW_MAX = 100_000


class Redrive:
    """A bulk operation under way: workers take its steps, here it is watched, stopped and resumed."""

    def __init__(self, session: Session, bulk: BulkView) -> None:
        self._session = session
        self._bulk = bulk

    def __repr__(self) -> str:
        return f"<bulk {self._bulk.verb.value} {self.id}, {self._bulk.status.value}>"

    def __eq__(self, other: object) -> bool:
        """Whether both are the same operation, however they were come by."""
        if not isinstance(other, Redrive):
            return NotImplemented
        return self.id == other.id and self._session is other._session

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def id(self) -> str:
        """The operation's id."""
        return self._bulk.id

    @property
    def run(self) -> Run | None:
        """The run in which dead letters are driven again."""
        found = (
            [] if self._bulk.run is None else self._session.opened.reader.runs(no=self._bulk.run)
        )
        return Run(self._session, found[0]) if found else None

    def view(self) -> BulkView:
        """How far it is."""
        found = self._session.opened.reader.bulks(id=self.id)
        self._bulk = found[0] if found else self._bulk
        return self._bulk

    def wait(self, *, wait_s: float = 3_600.0) -> BulkView:
        """The operation when all are taken on, or it was stopped; what it drives again may still be at work."""
        bulk = wait_until(lambda bulk: bulk.status is not BulkStatus.RUNNING, self.view, wait_s)
        if bulk.status is BulkStatus.RUNNING:
            raise RunUnfinished(
                f"bulk operation {self.id} has taken on {bulk.done} after {wait_s:g} s; "
                "is a worker of its pipeline at work?"
            )
        return bulk

    def stop(self, *, reason: str = "", by: str = "app") -> BulkView:
        """Take on no more; what lives again goes on."""
        self._bulk = self._session.bulks.stop(self.view(), Deed(by, reason))
        return self._bulk

    def resume(self, *, reason: str = "", by: str = "app") -> BulkView:
        """Go on where it stands."""
        self._bulk = self._session.bulks.resume(self.view(), Deed(by, reason))
        return self._bulk

    def refusals(self) -> Iterator[LoggedRefusal]:
        """What it has left as it was, and why."""
        after = 0
        while page := self._session.opened.reader.refusals(self._bulk.no, after=after):
            yield from page
            after = page[-1].job_no


class DeadLetters:
    """The failed jobs of a store that nobody has discarded.

    Filters: ``pipeline``, ``stage``, ``run`` (its id, number or name), ``kind``, ``code``, ``fingerprint``,
    ``owner``, ``reason_failed``, ``text``, ``older_than`` and ``newer_than`` (such as "2h" or "3d"), ``discarded``,
    ``key`` (of ``owner``, else of the run's owner, else of no owner).
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(self, *, limit: int = 50, before: int | None = None, **chosen: Any) -> list[JobView]:
        """Dead letters, newest first; ``before`` continues below a job number."""
        meant = dead_meant(self._session, chosen)
        _check_whole("limit", limit)
        if before is not None:
            _check_whole("before", before)
        return self._session.opened.reader.jobs(meant, limit=limit, before=before)

    def groups(self, *, limit: int = 50, **chosen: Any) -> Sequence[DeadGroup]:
        """Dead letters by fingerprint, most frequent first."""
        _check_whole("limit", limit)
        return self._session.opened.reader.dead_groups(
            dead_meant(self._session, chosen), limit=limit
        )

    def get_letter(self, job_id: str | int) -> tuple[JobView, Sequence[AttemptView]]:
        """One dead letter, by id or number, with all its attempts."""
        reader = self._session.opened.reader
        job = job_at(reader, job_id)
        if job.state is not State.FAILED:
            raise NotRetriable(f"job {job_id} is {job.state.value}, and no dead letter")
        return job, reader.attempts(job.no)

    def count(self, *, count_max: int = _PREVIEW_MAX, **chosen: Any) -> Preview:
        """How many there are, counted up to a bound, and how they have ended."""
        return self._session.opened.reader.preview(
            dead_meant(self._session, chosen), count_max=count_max
        )

    def preview(
        self,
        *,
        from_stage: str | None = None,
        from_start: bool = False,
        count_max: int = _PREVIEW_MAX,
        **chosen: Any,
    ) -> RedrivePreview:
        """What a re-drive would do: how many are eligible, how many not, and why."""
        opened = self._session.opened
        settings = BulkSettings(from_stage, from_start)
        revivals = Revivals(
            opened.reader, self._session.catalogue, settings.restart, lanes_later=True
        )
        asking = Previewing(opened.reader, revivals, self._session.checks)
        return asking.of(dead_meant(self._session, chosen), count_max=count_max)

    def redrive(
        self,
        *,
        from_stage: str | None = None,
        from_start: bool = False,
        canary: int = 0,
        canary_share: float = 0.9,
        rate: str | float | None = None,
        failure_budget: float = 0.10,
        reason: str = "",
        by: str = "app",
        **chosen: Any,
    ) -> Redrive:
        """Drive dead letters of one pipeline again, in a run of their own; workers do it, this writes it down.

        ``canary`` are driven first, and unless ``canary_share`` of them succeed, no more are. ``rate`` is how
        many may begin: 5 (a second), "100/min". When more than ``failure_budget`` of them fail again, the run is aborted.
        """
        settings = redrive_settings(from_stage, from_start, canary, canary_share, rate)
        bulk = self._session.bulks.begin_redrive(
            dead_meant(self._session, chosen),
            settings,
            deed=Deed(by, reason),
            ids=self._session.ids,
            bulk_id=self._session.ids.next(),
            failure_budget=failure_budget,
        )
        return Redrive(self._session, bulk)

    def redrives(self, *, limit: int = 50) -> Sequence[Redrive]:
        """The bulk operations there were, newest first."""
        found = self._session.opened.reader.bulks(limit=limit)
        return [Redrive(self._session, one) for one in found]

    def get_redrive(self, bulk_id: str) -> Redrive:
        """A bulk operation by its id."""
        found = self._session.opened.reader.bulks(id=bulk_id)
        if not found:
            raise UnknownName(f"no bulk operation {bulk_id!r}; see: perdure dead history")
        return Redrive(self._session, found[0])

    def discard(
        self, *, every: bool = False, reason: str = "", by: str = "app", **chosen: Any
    ) -> BulkView:
        """Mark dead letters as dealt with; they stay in the books. Without a filter say ``every=True``."""
        check_chosen(chosen, "every dead letter", every=every)
        bulks = self._session.bulks
        bulk = bulks.begin_discard(
            dead_meant(self._session, chosen),
            deed=Deed(by, reason),
            bulk_id=self._session.ids.next(),
        )
        return bulks.through(bulk)

    def export(self, path: str | os.PathLike[str], **chosen: Any) -> int:
        """Write dead letters with their attempts to a file, a JSON object a line; how many."""
        count = 0
        target = Path(path)
        part = target.with_name(target.name + ".part")
        try:
            with part.open("w", encoding="utf-8") as file:
                for letter in self.letters(**chosen):
                    file.write(letter_line(letter))
                    count += 1
            part.replace(target)
        except OSError as error:
            raise CallerError(f"{target} cannot be written: {error.strerror}") from None
        return count

    def letters(self, **chosen: Any) -> Iterator[dict[str, Any]]:
        """Dead letters with their attempts as JSON objects, newest first."""
        reader, before = self._session.opened.reader, None
        meant = dead_meant(self._session, chosen)
        while page := reader.jobs(meant, limit=PAGE_ROWS_MAX, before=before):
            for job in page:
                yield letter_of(job, reader.attempts(job.no))
            before = page[-1].no


def redrive_settings(
    from_stage: str | None,
    from_start: bool,
    canary: int,
    canary_share: float,
    rate: str | float | None,
) -> BulkSettings:
    """How a re-drive is to go; what cannot be is refused with a reason."""
    return BulkSettings(from_stage, from_start, canary, canary_share, rate_per_s("rate", rate))


def letter_line(letter: Mapping[str, Any]) -> str:
    """A dead letter as a line of an export."""
    return json.dumps(letter, ensure_ascii=False, separators=(",", ":")) + "\n"


def letter_of(job: JobView, attempts: Sequence[AttemptView]) -> dict[str, Any]:
    """A dead letter as a JSON object: the item, how it failed, and every attempt."""
    plain = {
        name: value
        for name, value in msgspec.to_builtins(job).items()
        if name not in ("payload_json", "input_json", "result_json", "ready", "lane", "isolation")
    }
    return plain | {
        "item": decode(job.payload_json),
        "attempts": [_attempt(one) for one in attempts],
    }


def _attempt(one: AttemptView) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(one)
    evidence, why = plain.pop("evidence_json"), plain.pop("why_json")
    return plain | {
        "why": decode(why),
        "evidence": None if evidence is None else decode(evidence),
    }


def _check_whole(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
        raise CallerError(f"{name} is {value!r}; give a whole number of 0 or more")

"""Jobs as a user works through them: listed by filter, and cancelled, run now or retried in bulk."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perdure.app.dead_letters import Redrive
from perdure.app.files.items import items_in
from perdure.app.job_filters import check_chosen, dead_meant, jobs_meant, with_key
from perdure.app.session.session import Session
from perdure.engine.batch.item_jobs import Unreadable
from perdure.engine.gates.upstreams import rate_per_s
from perdure.engine.operate.bulk_settings import BulkSettings
from perdure.engine.operate.eligible import (
    Previewing,
    RedrivePreview,
    only_open,
    waiting_jobs,
)
from perdure.engine.operate.revival import Revivals, admit_correction
from perdure.model.errors import CallerError, PayloadRefused
from perdure.model.filters import JobFilter
from perdure.model.limits import COUNT_MAX, ENQUEUE_BATCH_MAX, ENQUEUE_BYTES_MAX
from perdure.model.operations import BulkVerb, Deed
from perdure.model.views import JobView, Preview

_LOOKED_MAX = 100_000

Payloads = Mapping[str, Any] | str | os.PathLike[str]


class Jobs:
    """The jobs of a store, and what is done to many of them at once.

    Each deed is a bulk operation: written down with who and why, gone through step by step here or by workers, watched and
    stopped by the answer. Filters: ``pipeline``, ``stage``, ``queue``, ``category``, ``run`` (its id, number or name),
    ``owner``, ``kind``, ``code``, ``text``, ``older_than`` and ``newer_than`` (such as "2h": since the job was enqueued,
    of a dead letter since it failed); of jobs ``label`` and ``state``, which may be ``retrying``,
    ``scheduled`` or ``held``, too; of dead letters ``fingerprint``, ``key``, ``reason_failed``, ``discarded``.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(
        self, *, key: str | None = None, limit: int = 50, before: int | None = None, **chosen: Any
    ) -> list[JobView]:
        """Jobs, newest first; ``before`` continues below a job number.

        With ``key`` those that have it, of ``owner``, else of the run's owner, else of no owner.
        """
        reader, meant = self._session.opened.reader, jobs_meant(self._session, chosen)
        if key is not None:
            meant = with_key(reader, meant, key)
        return reader.jobs(meant, limit=limit, before=before)

    def count(
        self, verb: str | None = None, *, count_max: int = COUNT_MAX, **chosen: Any
    ) -> Preview:
        """How many jobs are meant, counted up to a bound: by the filter, or by "cancel" or "run now" with it."""
        return self._session.opened.reader.preview(self._of(verb, chosen), count_max=count_max)

    def cancel(
        self, *, every: bool = False, reason: str = "", by: str = "app", **chosen: Any
    ) -> Redrive:
        """Cancel queued and processing jobs; what is enqueued later is not meant. Without a filter say ``every=True``."""
        check_chosen(chosen, "every open job", every=every)
        return self._begin(
            BulkVerb.CANCEL, jobs_meant(self._session, chosen), BulkSettings(), Deed(by, reason)
        )

    def run_now(
        self,
        *,
        every: bool = False,
        rate: str | float | None = None,
        reason: str = "",
        by: str = "app",
        **chosen: Any,
    ) -> Redrive:
        """Let jobs that wait, for their time or after a failure, be due now; with a ``rate``, so many at a time.

        Without a filter say ``every=True``.
        """
        check_chosen(chosen, "every job that waits", every=every)
        settings = BulkSettings(rate_per_s=rate_per_s("rate", rate))
        return self._begin(
            BulkVerb.RUN_NOW, jobs_meant(self._session, chosen), settings, Deed(by, reason)
        )

    def retry(
        self,
        *,
        from_stage: str | None = None,
        from_start: bool = False,
        payloads: Payloads | None = None,
        rate: str | float | None = None,
        reason: str = "",
        by: str = "app",
        **chosen: Any,
    ) -> Redrive:
        """Give dead letters of one pipeline a new life where they stand; `DeadLetters.redrive` does it in a run of its own.

        ``payloads`` are corrected items by key, or the path of a .jsonl file of {"key": …, "payload": …}: then the
        dead letters with these keys are meant, of ``owner`` or of no owner, and begin at their first stage.
        """
        settings = BulkSettings(
            from_stage,
            from_start,
            rate_per_s=rate_per_s("rate", rate),
            payloads=payloads is not None,
        )
        meant, brought = self._dead_letters_meant(chosen, payloads)
        return self._begin(BulkVerb.RETRY, meant, settings, Deed(by, reason), brought)

    def preview_retry(
        self,
        *,
        from_stage: str | None = None,
        from_start: bool = False,
        payloads: Payloads | None = None,
        count_max: int = _LOOKED_MAX,
        **chosen: Any,
    ) -> RedrivePreview:
        """What `retry` would do: how many are eligible, how many not, and why."""
        reader, settings = self._session.opened.reader, BulkSettings(from_stage, from_start)
        revivals = Revivals(reader, self._session.catalogue, settings.restart, lanes_later=True)
        meant, brought = self._dead_letters_meant(chosen, payloads)
        asking = Previewing(reader, revivals, self._session.checks, brought)
        return asking.of(meant, count_max=count_max)

    def _begin(
        self,
        verb: BulkVerb,
        chosen: JobFilter,
        settings: BulkSettings,
        deed: Deed,
        payloads: Mapping[str, str] | None = None,
    ) -> Redrive:
        """Begin it, and do here what can be done here at once; workers do the rest."""
        bulks = self._session.bulks
        bulk = bulks.begin(
            verb,
            chosen,
            settings,
            deed=deed,
            bulk_id=self._session.ids.next(),
            payloads=payloads or {},
        )
        if bulks.knows(bulk):
            bulk = bulks.through(bulk)
        return Redrive(self._session, bulk)

    def _of(self, verb: str | None, chosen: Mapping[str, Any]) -> JobFilter:
        meant = jobs_meant(self._session, chosen)
        if verb is None:
            return meant
        return waiting_jobs(meant) if BulkVerb(verb) is BulkVerb.RUN_NOW else only_open(meant)

    def _dead_letters_meant(
        self, chosen: Mapping[str, Any], payloads: Payloads | None
    ) -> tuple[JobFilter, dict[str, str] | None]:
        """The dead letters that are meant, and the payloads that they are given, checked."""
        if payloads is not None:
            chosen = {**chosen, "owner": chosen.get("owner") or ""}
        meant = dead_meant(self._session, chosen)
        if payloads is None:
            return meant, None
        if meant.pipeline is None:
            raise CallerError("corrected payloads are for the jobs of one pipeline; name it")
        return meant, self._admit(meant.pipeline, payloads)

    def _admit(self, pipeline: str, payloads: Payloads) -> dict[str, str]:
        catalogue = self._session.catalogue
        given = payloads if isinstance(payloads, Mapping) else payloads_in(Path(payloads))
        found: dict[str, str] = {}
        size_bytes = 0
        for key, item in given.items():
            try:
                found[key] = admit_correction(catalogue, pipeline, item)
            except PayloadRefused as refused:
                raise PayloadRefused(f"the payload of key {key!r} is refused: {refused}") from None
            size_bytes += len(found[key])
        if len(found) > ENQUEUE_BATCH_MAX or size_bytes > ENQUEUE_BYTES_MAX:
            raise CallerError(
                f"{len(found)} payloads of {size_bytes} bytes; one operation brings up to {ENQUEUE_BATCH_MAX} "
                f"of {ENQUEUE_BYTES_MAX} bytes: split them"
            )
        if not found:
            raise CallerError("there are no payloads; give at least one key with its payload")
        return found


def payloads_in(path: Path) -> dict[str, Any]:
    """The corrected items of a .jsonl file by key: a line {"key": …, "payload": …} each, or one that `dead export` wrote."""
    found: dict[str, Any] = {}
    for place, read in enumerate(items_in(path, "jsonl"), start=1):
        if isinstance(read, Unreadable):
            raise CallerError(read.why)
        line = read.item if isinstance(read.item, dict) else {}
        key, exported = line.get("key"), "item" in line and "payload" not in line
        if exported and key is None and "id" in line:
            raise CallerError(
                f"{path}: payload {place} is of a letter without a key; correct that one by its id: "
                f"perdure jobs retry {line['id']} --payload FILE"
            )
        if not isinstance(key, str) or not (exported or set(line) == {"key", "payload"}):
            raise CallerError(
                f'{path}: payload {place} is no {{"key": text, "payload": item}}; write one such object a line, '
                "or a line as perdure dead export writes it"
            )
        if key in found:
            raise CallerError(
                f"{path}: payload {place} has the key {key!r} once more; give it once"
            )
        found[key] = line["item"] if exported else line["payload"]
    return found

"""Runs as a user holds them."""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Self

from perdure.app.files.rewriting import open_rewritten
from perdure.app.session.session import Session
from perdure.app.session.waiting import wait_until, wait_until_async
from perdure.engine.batch.feeding import Fed
from perdure.engine.batch.report import Report, report_of
from perdure.engine.batch.results import as_ended, ended_so_far, has_stopped, in_order
from perdure.engine.batch.runs import is_stranded, settings_of, unfed_words
from perdure.engine.batch.unattended import Attendance
from perdure.engine.pauses import Pauses
from perdure.engine.payloads import decode
from perdure.engine.upkeep.bulk_duty import catch_up, revivals_waiting
from perdure.model.aliases import under_aliases
from perdure.model.errors import CallerError, RunAborted, RunUnfinished, UnknownName
from perdure.model.limits import PAGE_ROWS_MAX
from perdure.model.operations import Deed
from perdure.model.runs import ItemView, RunStatus, RunView
from perdure.model.states import State


@dataclass(frozen=True, slots=True)
class Result:
    """What has become of one item: a value, or the public words of its failure.

    ``error_detail`` is for operators: what was raised and where, as `perdure jobs show` has it.
    """

    key: str | None
    job_id: str
    state: State
    value: Any = None
    label: str | None = None
    error_kind: str | None = None
    error_code: str | None = None
    error: str | None = None
    error_detail: str | None = None
    _aliases: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether there is a value."""
        return self.state is State.SUCCEEDED

    def as_json(self, *, internal: bool = False) -> dict[str, Any]:
        """The result as a JSON object. A line of a file of failures has also what is ``internal``."""
        named: dict[str, Any] = {"key": self.key, "job_id": self.job_id}
        if self.ok:
            named |= {"result": self.value} | ({"label": self.label} if self.label else {})
        else:
            named |= {
                "state": self.state.value,
                "error_kind": self.error_kind,
                "error_code": self.error_code,
                "error": self.error,
            }
            named |= {"error_detail": self.error_detail} if internal else {}
        return under_aliases(named, self._aliases)


class Run:
    """A batch of items on their way through one pipeline.

    ``fed`` says what came of feeding it, where this call did that.
    """

    def __init__(self, session: Session, run: RunView, fed: Fed | None = None) -> None:
        self._session = session
        self._run = run
        self.fed = fed
        self._attendance: Attendance | None = None

    def __repr__(self) -> str:
        return f"<Run {self.name!r} of pipeline {self.pipeline!r}, {self._run.status.value}>"

    def __eq__(self, other: object) -> bool:
        """Whether both are the same run, however they were come by."""
        if not isinstance(other, Run):
            return NotImplemented
        return self.id == other.id and self._session is other._session

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def id(self) -> str:
        """The run's id."""
        return self._run.id

    @property
    def no(self) -> int:
        """The run's number."""
        return self._run.no

    @property
    def name(self) -> str:
        """The run's name: the same one goes on with it."""
        return self._run.name

    @property
    def pipeline(self) -> str:
        """The pipeline's name."""
        return self._run.pipeline

    @property
    def status(self) -> RunStatus:
        """What the run is now."""
        return self.view().status

    def view(self) -> RunView:
        """The run as it is now, its counts summed."""
        found = self._session.opened.reader.run(self.id)
        if found is None:
            raise UnknownName(f"run {self.id} is no longer in the store")
        self._run = found
        return found

    def wait(self, *, wait_s: float | None = None) -> RunView:
        """The run when it is over. Raises `RunAborted` with the reason, or `RunUnfinished` after ``wait_s``.

        A worker has to work on it: when nobody has for 10 s, a warning says so. A paused run is waited for, and a cancelled one until none of its items is open.
        One that is not sealed, has no open items and was fed by nobody for 90 s would never end: `RunUnfinished` says so.
        """
        return _check_over(wait_until(_is_over, self._look, wait_s), wait_s)

    async def wait_async(self, *, wait_s: float | None = None) -> RunView:
        """As `wait`, without blocking the event loop; it can be cancelled."""
        return _check_over(await wait_until_async(_is_over, self._look, wait_s), wait_s)

    def results(
        self,
        *,
        order: Literal["items", "ended"] = "items",
        failed: bool = True,
        wait: bool = True,
    ) -> Iterator[Result]:
        """Stream the results: in the order of the items, or as they end; waits until the run has stopped.

        Without ``failed``, only values. Without ``wait``, what has ended by now, in the order of the items. What is
        open when a run is aborted or cancelled is left out. As `wait`, it raises `RunUnfinished` for a run that would
        never end, after what there is of it.
        """
        ways = {"items": in_order, "ended": as_ended}
        if order not in ways:
            raise CallerError(f"order is {order!r}; one of: items, ended")
        redriven = settings_of(self._run).redrive
        reader, pauses = self._session.opened.reader, Pauses()

        def rest() -> None:
            self._look()
            time.sleep(pauses.next_s())

        items = (
            ways[order](reader, self._run, redriven=redriven, rest=rest)
            if wait
            else ended_so_far(reader, self._run, redriven=redriven)
        )
        aliases = self._session.aliases_of(self._run.pipeline)
        for item in items:
            pauses.begin()
            if failed or item.state is State.SUCCEEDED:
                yield result_of(item, aliases)

    def write_results(
        self, path: str | os.PathLike[str], *, order: Literal["items", "ended"] = "items"
    ) -> int:
        """Write the values to a file, a JSON object a line; how many. The file is whole, or as it was before."""
        count = 0
        with Sink(Path(path)) as sink:
            for one in self.results(order=order, failed=False):
                sink.write(one)
                count += 1
            missing = self.view().counts.succeeded - count
            if missing > 0 and not settings_of(self._run).redrive:
                raise CallerError(
                    f"{missing} of {count + missing} results of run {self.name!r} are gone: succeeded jobs are "
                    "kept for as long as the setting retain_succeeded_s says"
                )
        return count

    def pause(self, *, reason: str = "", by: str = "app") -> None:
        """Claim none of its items until it is resumed; attempts under way end."""
        self._run = self._session.runs.pause(self.view(), Deed(by, reason))

    def resume(
        self,
        *,
        failure_budget: float | None = None,
        failure_budgets: Mapping[str, float] | None = None,
        check_every: int | None = None,
        sample_min: int | None = None,
        count_rate_limits: bool | None = None,
        completed_at: float | None = None,
        partial_at: float | None = None,
        cost_max_usd: float | None = None,
        reason: str = "",
        by: str = "app",
    ) -> None:
        """Go on with a paused or aborted run, with other budgets if they are given; see `Pipeline.run`.

        A retry or re-drive of its dead letters that waits for a worker is carried out first, where the app knows the pipeline.
        """
        budgets = given_options(
            failure_budget=failure_budget,
            kinds=failure_budgets,
            check_every=check_every,
            sample_min=sample_min,
            rate_limits=count_rate_limits,
            completed_at=completed_at,
            partial_at=partial_at,
            cost_max_usd=cost_max_usd,
        )
        bulks = self._session.bulks
        catch_up(bulks, self.view())
        try:
            self._run = self._session.runs.resume(self.view(), Deed(by, reason), budgets)
        except RunAborted as refused:
            waiting = revivals_waiting(bulks, self._run)
            if not waiting:
                raise
            raise RunAborted(
                f"{refused}; bulk operation {waiting[0].id} waits to do that: name the app, which knows the stages "
                f"(perdure runs resume {self.no} --app module:variable), or start a worker"
            ) from None

    def cancel(self, *, reason: str = "", by: str = "app") -> None:
        """Cancel the run: nothing of it is claimed any more, and a worker cancels its open items."""
        self._run = self._session.runs.cancel(self.view(), Deed(by, reason))

    def seal(self) -> None:
        """Say that all items are in, of a run that somebody else was feeding."""
        self._run = self._session.runs.seal(self.view())

    def report(self) -> Report:
        """How it went: retries, errors, stages, waste; walks over all its attempts."""
        return report_of(self._session.opened.reader, self.view())

    async def view_async(self) -> RunView:
        """As `view`, without blocking the event loop."""
        return await asyncio.to_thread(self.view)

    async def results_async(self, *, failed: bool = True) -> AsyncIterator[Result]:
        """As `results` in the order of the items, without blocking the event loop; the first comes when the run has stopped."""
        await wait_until_async(has_stopped, self._look, None)
        found = self.results(failed=failed, wait=False)
        while page := await asyncio.to_thread(lambda: list(islice(found, PAGE_ROWS_MAX))):
            for one in page:
                yield one

    async def write_results_async(self, path: str | os.PathLike[str]) -> int:
        """As `write_results`, without blocking the event loop."""
        await wait_until_async(has_stopped, self._look, None)
        return await asyncio.to_thread(self.write_results, path)

    async def pause_async(self, *, reason: str = "", by: str = "app") -> None:
        """As `pause`, without blocking the event loop."""
        await asyncio.to_thread(self.pause, reason=reason, by=by)

    async def resume_async(self, **options: Any) -> None:
        """As `resume`, without blocking the event loop."""
        await asyncio.to_thread(self.resume, **options)

    async def cancel_async(self, *, reason: str = "", by: str = "app") -> None:
        """As `cancel`, without blocking the event loop."""
        await asyncio.to_thread(self.cancel, reason=reason, by=by)

    async def seal_async(self) -> None:
        """As `seal`, without blocking the event loop."""
        await asyncio.to_thread(self.seal)

    async def report_async(self) -> Report:
        """As `report`, without blocking the event loop."""
        return await asyncio.to_thread(self.report)

    def _look(self) -> RunView:
        """The run as it is now; raises for one that nothing more will happen to, instead of waiting for ever."""
        run = self.view()
        if self._attendance is None:
            self._attendance = Attendance(self._session.opened.reader, self._session.observers)
        self._attendance.look(run)
        if _is_over(run) or run.sealed_at is not None or run.counts.open:
            return run
        now = self._session.opened.reader.now()
        if is_stranded(run, now):
            raise RunUnfinished(f"run {run.name!r} is {unfed_words(run, now)}")
        return run


def _is_over(run: RunView) -> bool:
    return run.ended_at is not None or run.status is RunStatus.ABORTED


def _check_over(run: RunView, wait_s: float | None) -> RunView:
    """A run that was waited for; says so when it was aborted, or is not over yet."""
    if run.status is RunStatus.ABORTED:
        error = RunAborted(f"run {run.name!r} was {run.why}; what is left of it can be resumed")
        error.add_note(f"what failed, and where: perdure dead groups --run {run.no}")
        raise error
    if not _is_over(run):
        raise RunUnfinished(
            f"run {run.name!r} is {run.status.value} after {wait_s:g} s: "
            f"{run.counts.processed} of {run.counts.total} items processed"
        )
    return run


def result_of(item: ItemView, aliases: Mapping[str, str]) -> Result:
    """An item as its user sees it."""
    if item.state is State.SUCCEEDED:
        value = decode(item.result_json or "null")
        return Result(item.key, item.id, item.state, value, item.label, _aliases=aliases)
    return Result(
        item.key,
        item.id,
        item.state,
        error_kind=item.error_kind,
        error_code=item.error_code,
        error=item.error_message,
        error_detail=item.error_detail,
        _aliases=aliases,
    )


class Sink:
    """A file of results, one JSON object a line; it takes the place of the old one when it is whole.

    A pipe or a device is written straight into, and cannot be begun again: it does not rewind.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._withdrawn = False

    def __enter__(self) -> Self:
        self._file = open_rewritten(self._path)
        return self

    def withdraw(self) -> None:
        """There is nothing to keep: the old file stays."""
        self._withdrawn = True

    @property
    def rewinds(self) -> bool:
        """Whether what is there can be forgotten."""
        return self._file.rewinds

    def write(self, result: Result) -> None:
        """Add a line."""
        line = result.as_json(internal=True)
        self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")))

    def flush(self) -> None:
        """Let others see what is there."""
        self._file.flush()

    def begin_again(self) -> None:
        """Forget what is there."""
        self._file.begin_again()

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None and not self._withdrawn:
                self._file.keep()
            else:
                self._file.leave()
        except OSError as error:
            if kind is None:
                raise CallerError(f"{self._path} cannot be written: {error.strerror}") from None


def given_options(**options: Any) -> Mapping[str, Any]:
    """The options that were given at all; None means that one was not."""
    return {name: value for name, value in options.items() if value is not None}
